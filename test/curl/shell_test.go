// Package curl calls the built program with curl, command lines as documentation shows
// them: kvasir serve in front of kvasir engine processes. Where there is no curl the tests
// are skipped.
package curl

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"kvasir/internal/testkit/scripted"
	"kvasir/test/program"
)

func TestMain(m *testing.M) { os.Exit(program.Main(m)) }

// needCurl skips the test where there is no curl of at least that version.
func needCurl(t *testing.T, major, minor int) {
	t.Helper()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("this test runs curl, which this machine has not got")
	}
	out, err := exec.Command("curl", "--version").Output()
	if err != nil {
		t.Fatalf("curl --version: %v", err)
	}
	m := regexp.MustCompile(`^curl (\d+)\.(\d+)`).FindSubmatch(out)
	if m == nil {
		t.Fatalf("curl says that it is %s", out)
	}
	x, _ := strconv.Atoi(string(m[1])) // they are digits
	y, _ := strconv.Atoi(string(m[2]))
	if x < major || x == major && y < minor {
		t.Skipf("this test needs curl %d.%d; this machine's is %d.%d", major, minor, x, y)
	}
}

// curlHas reports whether curl is built with a feature, such as HTTP2.
func curlHas(t *testing.T, feature string) bool {
	t.Helper()
	needCurl(t, 0, 0)
	out, err := exec.Command("curl", "--version").Output()
	if err != nil {
		t.Fatalf("curl --version: %v", err)
	}
	_, features, _ := strings.Cut(string(out), "Features:")
	return slices.Contains(strings.Fields(features), feature)
}

// needFeature skips the test where curl is built without a feature.
func needFeature(t *testing.T, name string) {
	t.Helper()
	if !curlHas(t, name) {
		t.Skipf("this machine's curl is built without %s", name)
	}
}

// shell runs command lines in a folder of their own.
type shell struct {
	gateway *program.Gateway
	dir     string
	base    string // $KVASIR
}

// ran is how a command line ended.
type ran struct {
	out, talk string // on standard output and error
	code      int
}

// withEngines runs a gateway whose model tiny is served by two emulated engines. keys are
// further keys of the configuration.
func withEngines(t *testing.T, keys string) *shell {
	t.Helper()
	needCurl(t, 0, 0)
	var engines []string
	for range 2 {
		engines = append(engines, program.Engine(t, "--model", "tiny", "--speed", "5"))
	}
	return serve(t, keys, engines...)
}

// withScript runs a gateway whose model tiny is served by a server that does what the
// script says.
func withScript(t *testing.T, keys string, script scripted.Script) (*shell, *scripted.Server) {
	t.Helper()
	needCurl(t, 0, 0)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := scripted.Start(l, scripted.Options{}, script)
	t.Cleanup(s.Close)
	return serve(t, keys, "http://"+s.Addr()), s
}

func serve(t *testing.T, keys string, endpoints ...string) *shell {
	t.Helper()
	g := program.Serve(t, fmt.Sprintf("drain: 1s\n%smodels:\n  tiny: {endpoints: [%s], signals: {scrape: 0s, max_age: 0s}, probe: {interval: 0s}}\n", keys, strings.Join(endpoints, ", ")))
	s := &shell{gateway: g, dir: t.TempDir(), base: g.Base}
	s.write(t, "chat.json", []byte(chat))
	s.write(t, "stream.json", []byte(streamed))
	return s
}

// What the command lines send.
const (
	chat     = `{"model":"tiny","max_tokens":20,"messages":[{"role":"user","content":"Who made the mead?"}]}`
	streamed = `{"model":"tiny","max_tokens":20,"stream":true,"messages":[{"role":"user","content":"Who made the mead?"}]}`
)

// bigChat returns a chat with an image of so many bytes.
func bigChat(size int) []byte {
	image := strings.Repeat("bWVhZA", size/6)
	return fmt.Appendf(nil, `{"model":"tiny","max_tokens":20,"messages":[{"role":"user","content":[`+
		`{"type":"text","text":"What is on it?"},{"type":"image_url","image_url":{"url":"data:image/png;base64,%s"}}]}]}`, image)
}

func (s *shell) write(t *testing.T, name string, data []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func (s *shell) read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(s.dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// command prepares a command line, in which $KVASIR is the gateway's URL and $ADMIN that of
// its operators' listener.
func (s *shell) command(t *testing.T, line string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), "sh", "-c", line)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "KVASIR="+s.base, "ADMIN="+s.gateway.Admin, "CURL_HOME="+s.dir, "NO_PROXY=*")
	return cmd
}

// run runs a command line to its end.
func (s *shell) run(t *testing.T, line string) ran {
	t.Helper()
	cmd := s.command(t, line)
	var out, talk bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &talk
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s: %v", line, err)
	}
	return ran{out: out.String(), talk: talk.String(), code: cmd.ProcessState.ExitCode()}
}

// ok runs a command line that must succeed, and returns what it printed.
func (s *shell) ok(t *testing.T, line string) ran {
	t.Helper()
	r := s.run(t, line)
	if r.code != 0 {
		t.Fatalf("%s\nended with %d\n%s\n%s", line, r.code, r.out, r.talk)
	}
	return r
}

// answered checks a whole answer, and what follows it from -w.
func (r ran) answered(t *testing.T, after string) {
	t.Helper()
	body, ok := strings.CutSuffix(r.out, after)
	var got struct {
		Choices []struct {
			Message struct{ Content string }
		}
		Usage struct {
			Completion int `json:"completion_tokens"`
		}
	}
	err := json.Unmarshal([]byte(body), &got)
	if !ok || err != nil || len(got.Choices) != 1 || got.Choices[0].Message.Content == "" || got.Usage.Completion == 0 {
		t.Errorf("got %s, want an answer and then %q (%v)\n%s", r.out, after, err, r.talk)
	}
}

// streamed checks a whole stream, and what follows it from -w.
func (r ran) streamed(t *testing.T, after string) {
	t.Helper()
	body, ok := strings.CutSuffix(r.out, after)
	if !ok || !strings.HasSuffix(body, "data: [DONE]\n\n") || strings.Count(body, "data: {") < 3 || !strings.Contains(body, `"finish_reason":"`) {
		t.Errorf("got %s, want a stream and then %q\n%s", r.out, after, r.talk)
	}
}

// refused checks an error in OpenAI's shape, and what follows it from -w.
func (r ran) refused(t *testing.T, code, after string) {
	t.Helper()
	body, ok := strings.CutSuffix(r.out, after)
	var got struct {
		Error struct{ Message, Code string }
	}
	if err := json.Unmarshal([]byte(body), &got); !ok || err != nil || got.Error.Code != code || got.Error.Message == "" || r.code != 0 {
		t.Errorf("curl ended with %d and got %s, want the error %s and then %q (%v)\n%s", r.code, r.out, code, after, err, r.talk)
	}
}
