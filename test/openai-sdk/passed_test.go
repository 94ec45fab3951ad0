package openaisdk

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"mime"
	"mime/multipart"
	"net/http"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"

	"kvasir/internal/testkit/scripted"
)

// noise returns bytes that are no text, the same ones every time. A boundary's beginning
// is among them.
func noise(n int) []byte {
	src := rand.NewChaCha8([32]byte{'m', 'e', 'a', 'd'})
	b := make([]byte, n)
	_, _ = src.Read(b) // never fails
	copy(b[n/2:], "\r\n--\r\n\r\n--boundary")
	return b
}

// only returns the one call that reached the endpoint, which came by the route.
func (r *rig) only(t *testing.T, target string) scripted.Record {
	t.Helper()
	calls := r.servers[0].Calls()
	if len(calls) != 1 || calls[0].Method != http.MethodPost || calls[0].Target != target {
		t.Fatalf("the endpoint got %d calls: %+v", len(calls), calls)
	}
	return calls[0]
}

// asked checks the JSON that the endpoint got.
func (r *rig) asked(t *testing.T, target string, holds ...string) {
	t.Helper()
	body := string(r.only(t, target).Body)
	for _, part := range append(holds, `"model":"served"`) {
		if !strings.Contains(body, part) {
			t.Errorf("the endpoint got %s without %s", body, part)
		}
	}
}

func TestModerations(t *testing.T) {
	r := withScript(t, "", func(c *scripted.Call) {
		c.Reply(200, "application/json", `{"id":"m","model":"served","results":[{"flagged":true,"categories":{"violence":true},"category_scores":{"violence":0.9}}]}`)
	})
	c := r.client()
	got, err := c.Moderations.New(t.Context(), openai.ModerationNewParams{Model: "tiny", Input: openai.ModerationNewParamsInputUnion{OfString: openai.String("blood")}})
	if err != nil || len(got.Results) != 1 || !got.Results[0].Categories.Violence {
		t.Errorf("got %+v, %v", got, err)
	}
	r.asked(t, "/v1/moderations", `"input":"blood"`)
}

func TestSpeech(t *testing.T) {
	sound := noise(200_000)
	for name, script := range map[string]scripted.Script{
		"whole": func(c *scripted.Call) { c.Reply(200, "audio/mpeg", string(sound)) },
		"in chunks": func(c *scripted.Call) {
			c.Head(200, "Content-Type: audio/mpeg", "Transfer-Encoding: chunked")
			for rest := sound; len(rest) > 0; rest = rest[min(7919, len(rest)):] {
				_ = c.Chunk(string(rest[:min(7919, len(rest))]))
			}
			c.LastChunk()
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := withScript(t, "", script)
			c := r.client()
			resp, err := c.Audio.Speech.New(t.Context(), openai.AudioSpeechNewParams{
				Model: "tiny", Input: "mead", Voice: openai.AudioSpeechNewParamsVoiceUnion{OfString: openai.String("alloy")},
			})
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			got, err := io.ReadAll(resp.Body)
			if err != nil || !bytes.Equal(got, sound) || resp.Header.Get("Content-Type") != "audio/mpeg" {
				t.Errorf("got %d bytes of %q, %v", len(got), resp.Header.Get("Content-Type"), err)
			}
			r.asked(t, "/v1/audio/speech", `"input":"mead"`, `"voice":"alloy"`)
		})
	}
}

func TestSpeech_BrokenOffIsAnError(t *testing.T) {
	r := withScript(t, "", func(c *scripted.Call) {
		c.Head(200, "Content-Type: audio/mpeg", "Transfer-Encoding: chunked")
		_ = c.Chunk(string(noise(50_000)))
		c.RST()
	})
	c := r.client()
	resp, err := c.Audio.Speech.New(t.Context(), openai.AudioSpeechNewParams{Model: "tiny", Input: "mead", Voice: openai.AudioSpeechNewParamsVoiceUnion{OfString: openai.String("alloy")}})
	if err == nil {
		defer resp.Body.Close()
		_, err = io.ReadAll(resp.Body)
	}
	if err == nil {
		t.Error("half a sound ended as if it were whole")
	}
}

// part is one part of an upload as the endpoint got it.
type part struct {
	name, file string
	data       []byte
}

// uploaded returns the parts of the upload that the endpoint got, in their order.
func (r *rig) uploaded(t *testing.T, target string) (parts []part) {
	t.Helper()
	call := r.only(t, target)
	kind, _ := call.Get("Content-Type")
	_, params, err := mime.ParseMediaType(kind)
	if err != nil {
		t.Fatal(err)
	}
	for mr := multipart.NewReader(bytes.NewReader(call.Body), params["boundary"]); ; {
		p, err := mr.NextPart()
		if err == io.EOF {
			return parts
		}
		if err != nil {
			t.Fatalf("after %d parts: %v", len(parts), err)
		}
		data, err := io.ReadAll(p)
		if err != nil {
			t.Fatal(err)
		}
		parts = append(parts, part{p.FormName(), p.FileName(), data})
	}
}

// checkUpload wants the file as it was, before the model, whose name alone has changed.
func checkUpload(t *testing.T, parts []part, fileField, fileName string, file []byte) {
	t.Helper()
	at := map[string]int{}
	for i, p := range parts {
		at[p.name] = i
	}
	f, m := at[fileField], at["model"]
	if f >= m {
		t.Errorf("the model came before the file: %v", at)
	}
	if !bytes.Equal(parts[f].data, file) || parts[f].file != fileName {
		t.Errorf("the endpoint got file %q of %d bytes", parts[f].file, len(parts[f].data))
	}
	if string(parts[m].data) != "served" {
		t.Errorf("the endpoint was asked for %q", parts[m].data)
	}
}

func TestTranscriptions(t *testing.T) {
	sound := noise(300_000)
	params := func() openai.AudioTranscriptionNewParams {
		return openai.AudioTranscriptionNewParams{Model: "tiny", File: openai.File(bytes.NewReader(sound), "mead.mp3", "audio/mpeg"), Language: openai.String("is")}
	}
	t.Run("whole", func(t *testing.T) {
		r := withScript(t, "", func(c *scripted.Call) { c.Reply(200, "application/json", `{"text":"mead"}`) })
		c := r.client()
		got, err := c.Audio.Transcriptions.New(t.Context(), params())
		if err != nil || got.Text != "mead" {
			t.Errorf("got %+v, %v", got, err)
		}
		checkUpload(t, r.uploaded(t, "/v1/audio/transcriptions"), "file", "mead.mp3", sound)
	})
	t.Run("streamed", func(t *testing.T) {
		r := withScript(t, "", func(c *scripted.Call) {
			c.Stream(named("transcript.text.delta", `"delta":"mead"`), named("transcript.text.done", `"text":"mead"`))
		})
		c := r.client()
		s := c.Audio.Transcriptions.NewStreaming(t.Context(), params())
		var kinds []string
		for s.Next() {
			kinds = append(kinds, s.Current().Type)
		}
		if s.Err() != nil || strings.Join(kinds, " ") != "transcript.text.delta transcript.text.done" {
			t.Errorf("got %v, %v", kinds, s.Err())
		}
		checkUpload(t, r.uploaded(t, "/v1/audio/transcriptions"), "file", "mead.mp3", sound)
	})
	t.Run("translation", func(t *testing.T) {
		r := withScript(t, "", func(c *scripted.Call) { c.Reply(200, "application/json", `{"text":"mead"}`) })
		c := r.client()
		//lint:ignore SA1019 endpoints may have the route still
		got, err := c.Audio.Translations.New(t.Context(), openai.AudioTranslationNewParams{Model: "tiny", File: openai.File(bytes.NewReader(sound), "mead.mp3", "audio/mpeg")})
		if err != nil || got.Text != "mead" {
			t.Errorf("got %+v, %v", got, err)
		}
		checkUpload(t, r.uploaded(t, "/v1/audio/translations"), "file", "mead.mp3", sound)
	})
	t.Run("unknown model", func(t *testing.T) {
		r := withScript(t, "", answers)
		p := params()
		p.Model = "nobody"
		c := r.client()
		_, err := c.Audio.Transcriptions.New(t.Context(), p)
		failure{status: 404, code: "model_not_found", param: "model", message: "nobody"}.check(t, err)
	})
}

func TestImages(t *testing.T) {
	picture := strings.Repeat("bWVhZA", 50_000)
	whole := func(c *scripted.Call) {
		c.Reply(200, "application/json", fmt.Sprintf(`{"created":1,"data":[{"b64_json":"%s"}]}`, picture))
	}
	t.Run("generated", func(t *testing.T) {
		r := withScript(t, "", whole)
		c := r.client()
		got, err := c.Images.Generate(t.Context(), openai.ImageGenerateParams{Model: "tiny", Prompt: "a barrel"})
		if err != nil || len(got.Data) != 1 || got.Data[0].B64JSON != picture {
			t.Errorf("got %d images, %v", len(got.Data), err)
		}
		r.asked(t, "/v1/images/generations", `"prompt":"a barrel"`)
	})
	t.Run("generated in a stream", func(t *testing.T) {
		r := withScript(t, "", func(c *scripted.Call) {
			c.Stream(named("image_generation.partial_image", `"partial_image_index":0,"b64_json":"bWVh"`),
				named("image_generation.completed", `"b64_json":"`+picture+`"`))
		})
		c := r.client()
		s := c.Images.GenerateStreaming(t.Context(), openai.ImageGenerateParams{Model: "tiny", Prompt: "a barrel", PartialImages: openai.Int(1)})
		last := ""
		n := 0
		for ; s.Next(); n++ {
			last = s.Current().B64JSON
		}
		if s.Err() != nil || n != 2 || last != picture {
			t.Errorf("got %d events, the last of %d bytes, %v", n, len(last), s.Err())
		}
	})
	for name, edit := range map[string]func(*openai.Client, io.Reader) (*openai.ImagesResponse, error){
		"/v1/images/edits": func(c *openai.Client, f io.Reader) (*openai.ImagesResponse, error) {
			return c.Images.Edit(t.Context(), openai.ImageEditParams{Model: "tiny", Prompt: "more", Image: openai.ImageEditParamsImageUnion{OfFile: f}})
		},
		"/v1/images/variations": func(c *openai.Client, f io.Reader) (*openai.ImagesResponse, error) {
			//lint:ignore SA1019 endpoints may have the route still
			return c.Images.NewVariation(t.Context(), openai.ImageNewVariationParams{Model: "tiny", Image: f})
		},
	} {
		t.Run(name, func(t *testing.T) {
			file := noise(100_000)
			r := withScript(t, "", whole)
			got, err := edit(r.client(), openai.File(bytes.NewReader(file), "barrel.png", "image/png"))
			if err != nil || len(got.Data) != 1 {
				t.Errorf("got %+v, %v", got, err)
			}
			checkUpload(t, r.uploaded(t, name), "image", "barrel.png", file)
		})
	}
}
