package api

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"mime"
	"mime/multipart"
	"net/textproto"
	"strings"
	"testing"
)

// form writes a form with a file of the given bytes between its fields.
func form(t testing.TB, boundary string, file []byte, fields ...string) (contentType string, body []byte) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	if err := w.SetBoundary(boundary); err != nil {
		t.Fatal(err)
	}
	part, err := w.CreateFormFile("file", `a "b" ü.wav`)
	if err == nil {
		_, err = part.Write(file)
	}
	for i := 0; i < len(fields) && err == nil; i += 2 {
		err = w.WriteField(fields[i], fields[i+1])
	}
	if err = errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return w.FormDataContentType(), b.Bytes()
}

// TestReadUpload_Big: the fields stand after a file of 20 MB, full of what looks like a
// boundary. Neither is copied, and the model can be replaced in place.
func TestReadUpload_Big(t *testing.T) {
	const boundary = "----formdata 7MA4YWxk"
	decoy := []byte("x--" + boundary + "\r\n--" + boundary + "x\r\n-- " + boundary + "\n\r")
	file := bytes.Repeat(append(decoy, make([]byte, 200)...), 20<<20/300)
	kind, body := form(t, boundary, file, "language", "en", "model", "whisper-1", "stream", "true")
	q, err := ReadUpload(kind, body)
	if err != nil {
		t.Fatal(err)
	}
	if string(q.Model) != "whisper-1" || !q.Stream || q.N != 1 || &q.Model[0] != &body[q.ModelAt.Start] {
		t.Errorf("%q %v", q.Model, q.Stream)
	}
	if n := testing.AllocsPerRun(2, func() { _, _ = ReadUpload(kind, body) }); n > 5 { // the boundary's
		t.Errorf("%v allocations", n)
	}
	pieces := Splice(body, Edit{q.ModelAt, AppendModelName(nil, Upload, `openai/whisper "large"`)})
	_, params, _ := mime.ParseMediaType(kind)
	read, err := multipart.NewReader(io.MultiReader(bytes.NewReader(pieces[0]), bytes.NewReader(pieces[1]), bytes.NewReader(pieces[2])), params["boundary"]).ReadForm(64 << 20)
	if err != nil {
		t.Fatal(err)
	}
	if read.Value["model"][0] != `openai/whisper "large"` || read.File["file"][0].Size != int64(len(file)) || read.Value["language"][0] != "en" {
		t.Errorf("%q, file of %d bytes", read.Value, read.File["file"][0].Size)
	}
}

func TestReadUpload(t *testing.T) {
	const plain = "multipart/form-data; boundary=b"
	field := func(name, value string) string {
		return "--b\r\nContent-Disposition: form-data; name=" + name + "\r\n\r\n" + value + "\r\n"
	}
	for _, c := range []struct{ name, kind, body, want string }{
		{"plain", plain, field(`"model"`, "m") + "--b--\r\n", "m false"},
		{"no line end after the last boundary", plain, field(`"model"`, "m") + "--b--", "m false"},
		{"an epilogue", plain, field(`"model"`, "m") + "--b--\r\nmore", "m false"},
		{"a line end first", plain, "\r\n" + field("model", "m") + "--b--", "m false"},
		{"blanks after boundaries", plain, "--b \t\r\nContent-Disposition: form-data; name=model\r\n\r\nm\r\n--b-- \r\n", "m false"},
		{"the boundary quoted, other parameters, upper case", `Multipart/Form-Data ; charset=utf-8; BOUNDARY="b c" ;`, "--b c\r\ncontent-DISPOSITION:Form-Data ; NAME = \"model\" ;\r\nX-Y: z\r\n\r\nm\r\n--b c--", "m false"},
		{"other fields", plain, field("prompt", "stream\r\n\r\nmodel") + field("stream", "True") + field("model", "m") + field("models", "x") + field("temperature", "0") + "--b--", "m true"},
		{"not streamed", plain, field("stream", "0") + field("model", "m") + "--b--", "m false"},
		{"a boundary within a line", plain, field("prompt", "a--b\r\n --b\r\n--bb\r\n--b-\r\n\n--bc") + field("model", "m") + "--b--", "m false"},
		{"an empty part, and no blank line of its own", plain, field("prompt", "") + "--b\r\n\r\n--b\r\n\r\nx\r\n" + field("model", "m") + "--b--", "m false"},
		{"a part that is nothing but its blank line", plain, "--b\r\n\r\n" + field("model", "m") + "--b--", "m false"},
		{"a file that is named like a field", plain, "--b\r\nContent-Disposition: form-data; name=\"x\"; filename=\"model\"\r\n\r\ny\r\n" + field("model", "m") + "--b--", "m false"},
		{"a part without a name", plain, "--b\r\nContent-Disposition: attachment; name=model\r\n\r\ny\r\n" + field("model", "m") + "--b--", "m false"},

		{"not a form", "application/json", "{}", `"Content-Type" must be multipart/form-data with a boundary of 1 to 70 characters, got application/json`},
		{"no boundary", "multipart/form-data", "", `"Content-Type" must be multipart/form-data with a boundary of 1 to 70 characters, got multipart/form-data`},
		{"an empty boundary", `multipart/form-data; boundary=""`, "", `"Content-Type" must be multipart/form-data with a boundary of 1 to 70 characters, got multipart/form-data; boundary=""`},
		{"a long boundary", `multipart/form-data; boundary=` + strings.Repeat("b", 71), "", `"Content-Type" must be multipart/form-data with a boundary of 1 to 70 characters, got multipart/form-data; boundary=` + strings.Repeat("b", 34) + "…"},
		{"a strange boundary", `multipart/form-data; boundary="a*b"`, "", `"Content-Type" must be multipart/form-data with a boundary of 1 to 70 characters, got multipart/form-data; boundary="a*b"`},
		{"two boundaries", `multipart/form-data; boundary=b; boundary=c`, "", `"Content-Type" must be multipart/form-data with a boundary of 1 to 70 characters, got multipart/form-data; boundary=b; boundary=c`},
		{"an open boundary", `multipart/form-data; boundary="b`, "", `"Content-Type" must be multipart/form-data with a boundary of 1 to 70 characters, got multipart/form-data; boundary="b`},
		{"nothing", plain, "", `invalid multipart/form-data at byte 0: expected the boundary that the content type gives`},
		{"another boundary", plain, "--c\r\n\r\n\r\n--c--", `invalid multipart/form-data at byte 0: expected the boundary that the content type gives`},
		{"cut", plain, field("model", "m"), `invalid multipart/form-data at byte 54: expected the boundary that the content type gives`},
		{"cut in a header", plain, "--b\r\nContent-Disp", `invalid multipart/form-data at byte 5: expected a part's header of at most 16 KiB, with a blank line after it`},
		{"a long header", plain, "--b\r\nX: " + strings.Repeat("x", maxPartHeader) + "\r\n\r\n\r\n--b--", `invalid multipart/form-data at byte 5: expected a part's header of at most 16 KiB, with a blank line after it`},
		{"no parts", plain, "--b--", `"model" is required`},
		{"LF alone", plain, strings.ReplaceAll(field("model", "m")+"--b--", "\r\n", "\n"), `invalid multipart/form-data at byte 3: expected CR LF after the boundary`},
		{"LF after a boundary", plain, field("model", "m") + "--b\n", `invalid multipart/form-data at byte 57: expected CR LF after the boundary`},
		{"more after the last boundary", plain, field("model", "m") + "--b--x", `invalid multipart/form-data at byte 59: expected CR LF after the boundary`},
		{"a folded header", plain, "--b\r\nContent-Disposition: form-data;\r\n name=model\r\n\r\nm\r\n--b--", `invalid multipart/form-data at byte 38: expected the name of a part's header and ':'`},
		{"a control character", plain, "--b\r\nX: a\nContent-Disposition: form-data; name=model\r\n\r\nm\r\n--b--", `invalid multipart/form-data at byte 5: expected a header of a part without control characters`},
		{"two names", plain, "--b\r\nContent-Disposition: form-data; name=x; name=model\r\n\r\nm\r\n--b--", `invalid multipart/form-data at byte 5: expected one Content-Disposition with a plain name and perhaps a filename`},
		{"two dispositions", plain, "--b\r\nContent-Disposition: form-data; name=x\r\nContent-Disposition: form-data; name=model\r\n\r\nm\r\n--b--", `invalid multipart/form-data at byte 45: expected one Content-Disposition with a plain name and perhaps a filename`},
		{"two dispositions, one name", plain, "--b\r\nContent-Disposition: attachment\r\nContent-Disposition: form-data; name=model\r\n\r\nm\r\n--b--", `invalid multipart/form-data at byte 38: expected one Content-Disposition with a plain name and perhaps a filename`},
		{"a name that is encoded alone", plain, "--b\r\nContent-Disposition: form-data; name*=utf-8''model\r\n\r\nm\r\n--b--", `invalid multipart/form-data at byte 5: expected one Content-Disposition with a plain name and perhaps a filename`},
		{"an encoded name", plain, field("x; name*=utf-8''model", "m") + "--b--", `invalid multipart/form-data at byte 5: expected one Content-Disposition with a plain name and perhaps a filename`},
		{"an escaped name", plain, field(`"mod\el"`, "m") + "--b--", `invalid multipart/form-data at byte 5: expected one Content-Disposition with a plain name and perhaps a filename`},
		{"an open name", plain, field(`"model`, "m") + "--b--", `invalid multipart/form-data at byte 5: expected one Content-Disposition with a plain name and perhaps a filename`},
		{"no model", plain, field("Model", "m") + "--b--", `"model" is required`},
		{"an empty model", plain, field("model", "") + "--b--", `"model" must be a model's name, got ""`},
		{"two models", plain, field("model", "m") + field("model", "m") + "--b--", `"model" is given twice; it must be given once`},
		{"a model that is a file", plain, field("model; filename*=utf-8''x", "m") + "--b--", `"model" must be a model's name, got a file`},
		{"a model that is encoded", plain, "--b\r\nContent-Disposition: form-data; name=model\r\nContent-Transfer-Encoding: base64\r\n\r\nbQ==\r\n--b--", `"model" must be a model's name, got an encoded value`},
		{"no boolean", plain, field("model", "m") + field("stream", "yes") + "--b--", `"stream" must be true or false, got "yes"`},
		{"two booleans", plain, field("model", "m") + field("stream", "true") + field("stream", "true") + "--b--", `"stream" is given twice; it must be given once`},
	} {
		q, err := ReadUpload(c.kind, []byte(c.body))
		got := fmt.Sprintf("%s %v", q.Model, q.Stream)
		if err != nil {
			got = err.Error()
			if e := BadRequest(err, "r"); e.Status != 400 || e.Message != got {
				t.Errorf("%s: %+v", c.name, e)
			}
		}
		if got != c.want {
			t.Errorf("%s\n got %s\nwant %s", c.name, got, c.want)
		}
		if err == nil && string(q.ModelAt.Of([]byte(c.body))) != string(q.Model) {
			t.Errorf("%s: model at %v", c.name, q.ModelAt)
		}
	}
}

// TestReadUpload_AsWritten: whatever mime/multipart writes is read, whatever the file holds.
func TestReadUpload_AsWritten(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	pieces := []string{"\r", "\n", "\r\n", "-", "--", "b", "--b", "\r\n--b ", "model", "\x00", "Content-Disposition: form-data; name=\"model\"\r\n\r\n", strings.Repeat("z", 100)}
	for range 2000 {
		boundary := strings.Repeat("b", 2+rng.IntN(60)) + strings.Repeat("-", rng.IntN(4))
		var file []byte
		for range rng.IntN(20) {
			file = append(file, pieces[rng.IntN(len(pieces))]...)
		}
		if bytes.Contains(file, []byte("\r\n--"+boundary)) {
			continue
		}
		streamed := rng.IntN(2) == 0
		kind, body := form(t, boundary, file, "prompt", pieces[rng.IntN(len(pieces))], "model", "m/"+boundary, "stream", fmt.Sprint(streamed))
		before := bytes.Clone(body)
		q, err := ReadUpload(kind, body)
		if err != nil || string(q.Model) != "m/"+boundary || q.Stream != streamed {
			t.Fatalf("%q %v %v\n%q", q.Model, q.Stream, err, body)
		}
		if !bytes.Equal(body, before) {
			t.Fatal("the body changed")
		}
	}
}

// FuzzUpload: what ReadUpload accepts mime/multipart reads, and finds the same in it.
func FuzzUpload(f *testing.F) {
	f.Add("multipart/form-data; boundary=b", []byte("--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nm\r\n--b\r\nContent-Disposition: form-data; name=stream\r\n\r\ntrue\r\n--b--\r\n"))
	f.Add(`multipart/form-data; boundary="b c"`, []byte("\r\n--b c \r\nContent-Disposition: form-data; name=x; filename=\"y\\\"\"\r\nX: y\r\n\r\n--b c\r\n\r\n--b c\r\ncontent-disposition: form-data;name=model\r\n\r\nm\r\n--b c--"))
	f.Fuzz(func(t *testing.T, contentType string, body []byte) {
		before := bytes.Clone(body)
		q, err := ReadUpload(contentType, body)
		if !bytes.Equal(body, before) {
			t.Fatal("the body changed")
		}
		if err != nil {
			if syntax, ok := errors.AsType[*SyntaxError](err); ok && (syntax.Offset < 0 || syntax.Offset > len(body)) {
				t.Fatalf("offset %d of %d", syntax.Offset, len(body))
			}
			return
		}
		_, params, err := mime.ParseMediaType(contentType)
		if err != nil {
			return // of parameters that are not looked at, more is allowed here
		}
		model, stream := "", false
		r := multipart.NewReader(bytes.NewReader(body), params["boundary"])
		for {
			p, err := r.NextRawPart()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatalf("accepted, but %v\n%q", err, body)
			}
			value, err := io.ReadAll(p)
			if err != nil {
				t.Fatalf("accepted, but %v\n%q", err, body)
			}
			if !understood(p.Header) {
				return
			}
			switch {
			case p.FileName() != "":
			case p.FormName() == "model":
				model = string(value)
			case p.FormName() == "stream":
				stream, _ = formBool(value)
			}
		}
		if string(q.Model) != model || q.Stream != stream || string(q.ModelAt.Of(body)) != model {
			t.Fatalf("%q %v, mime/multipart %q %v\n%q", q.Model, q.Stream, model, stream, body)
		}
	})
}

// understood reports whether mime reads the parameters of a part's header.
func understood(h textproto.MIMEHeader) bool {
	v := h.Get("Content-Disposition")
	if v == "" {
		return true
	}
	_, params, err := mime.ParseMediaType(v)
	_, file := params["filename"]
	return err == nil && (!file || params["filename"] != "")
}
