package web

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"kvasir/lab"
	"kvasir/selection/policy"
)

func serve(t *testing.T, labs bool) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(Page(func() bool { return labs }))
	t.Cleanup(s.Close)
	return s
}

func get(t *testing.T, url string, header ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer, string(body)
}

func post(t *testing.T, url, body string) (int, string) {
	t.Helper()
	answer, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// TestMap_NamesWhatThereIs: the map has a row for every policy, with its file, and links to
// labs and files that exist.
func TestMap_NamesWhatThereIs(t *testing.T) {
	files := map[string]string{}
	for _, f := range Files() {
		files[f.Path] = string(f.Body)
	}
	index := files["index.html"]
	var rows []string
	for _, m := range regexp.MustCompile(`<tr data-rule="([^"]+)">.*href="#/code/([^"]+)"`).FindAllStringSubmatch(index, -1) {
		rows = append(rows, m[1])
		if text := files["code/"+m[2]]; !strings.Contains(text, "Pick(") && !strings.Contains(text, "New() selection.Policy") {
			t.Errorf("%s: %s is not the file of a policy", m[1], m[2])
		}
	}
	var rules []string
	for _, r := range policy.Catalog() {
		rules = append(rules, r.Name)
	}
	slices.Sort(rows)
	slices.Sort(rules)
	if !slices.Equal(rows, rules) {
		t.Errorf("the map has rows for\n%v\nthere are\n%v", rows, rules)
	}
	for _, m := range regexp.MustCompile(`href="#/labs/([a-z-]+)(?:\?([a-z_]+)=([a-z-]+))?"`).FindAllStringSubmatch(index, -1) {
		l, err := lab.Lookup(m[1])
		if err != nil {
			t.Error(err)
			continue
		}
		if m[2] != "" && !slices.ContainsFunc(l.Params(), func(p lab.Param) bool { return p.Key == m[2] && slices.Contains(p.Choices, m[3]) }) {
			t.Errorf("%s has no %s=%s", m[1], m[2], m[3])
		}
	}
}

// TestPage_IsSmall without the code that it shows on request.
func TestPage_IsSmall(t *testing.T) {
	const most = 300 << 10
	sum := 0
	for _, f := range Files() {
		if !strings.HasPrefix(f.Path, "code/") {
			sum += len(f.Body)
		}
	}
	if sum > most {
		t.Errorf("%d bytes, at most %d are wanted", sum, most)
	}
}

// TestPage_HasNothingInline: the policy forbids it, so it would be dead.
func TestPage_HasNothingInline(t *testing.T) {
	inline := regexp.MustCompile(`(?i)<style|\sstyle=|\son[a-z]+="|<script[^>]*>[^<]|javascript:`)
	for _, f := range Files() {
		if !strings.HasSuffix(f.Path, ".html") {
			continue
		}
		if at := inline.Find(f.Body); at != nil {
			t.Errorf("%s: %s", f.Path, at)
		}
	}
	if away := regexp.MustCompile(`https?://`); true {
		for _, f := range Files() {
			if strings.HasPrefix(f.Path, "code/") || strings.HasSuffix(f.Path, ".svg") {
				continue
			}
			for line := range bytes.SplitSeq(f.Body, []byte("\n")) {
				if away.Match(line) && !bytes.Contains(line, []byte("http://www.w3.org/2000/svg")) {
					t.Errorf("%s names another origin: %s", f.Path, line)
				}
			}
		}
	}
}

func TestPage_IsServedWithItsPolicy(t *testing.T) {
	s := serve(t, true)
	for path, kind := range map[string]string{
		"/": "text/html; charset=utf-8", "/app.js": "text/javascript; charset=utf-8", "/style.css": "text/css; charset=utf-8",
		"/icon.svg": "image/svg+xml", "/code/selection/policy/random.go": "text/plain; charset=utf-8", "/v1/labs": "application/json",
	} {
		r, body := get(t, s.URL+path)
		if r.StatusCode != http.StatusOK || r.Header.Get("Content-Type") != kind || body == "" {
			t.Errorf("%s: %d %s, %d bytes", path, r.StatusCode, r.Header.Get("Content-Type"), len(body))
		}
		csp := r.Header.Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'", "script-src 'self';", "frame-ancestors 'none'", "base-uri 'none'"} {
			if !strings.Contains(csp, want) {
				t.Errorf("%s: policy %q lacks %s", path, csp, want)
			}
		}
		if strings.Contains(csp, "unsafe") || r.Header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %v", path, r.Header)
		}
	}
	for _, path := range []string{"/site/index.html", "/index.htm", "/../web.go", "/code/web/web.go", "/code/lab/lab_test.go", "/code/../go.mod"} {
		if r, _ := get(t, s.URL+path); r.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %d", path, r.StatusCode)
		}
	}
}

func TestPage_WhenItIsTheSame_Says304(t *testing.T) {
	s := serve(t, true)
	first, _ := get(t, s.URL+"/")
	again, body := get(t, s.URL+"/", "If-None-Match", first.Header.Get("Etag"))
	if again.StatusCode != http.StatusNotModified || body != "" {
		t.Errorf("%d with %d bytes", again.StatusCode, len(body))
	}
}

// TestLabs_AnswerAsTheLabDoes: what comes over the socket are lab.Answer's bytes.
func TestLabs_AnswerAsTheLabDoes(t *testing.T) {
	s := serve(t, true)
	question := `{"lab":"prefix","settings":{"threshold":"3"}}`
	want, err := lab.Answer([]byte(question), nil)
	if err != nil {
		t.Fatal(err)
	}
	status, got := post(t, s.URL+"/v1/labs", question)
	if status != http.StatusOK || got != string(want) {
		t.Errorf("%d, %d bytes; want %d", status, len(got), len(want))
	}
	_, body := get(t, s.URL+"/v1/labs")
	var listed struct{ Labs []lab.Listed }
	if err := json.Unmarshal([]byte(body), &listed); err != nil || len(listed.Labs) != len(lab.Catalog()) {
		t.Errorf("%d labs listed, %v", len(listed.Labs), err)
	}
}

func TestLabs_WhenTheQuestionIsWrong_SayWhatIs(t *testing.T) {
	s := serve(t, true)
	for question, want := range map[string]string{
		``:                        "the question: EOF",
		`[]`:                      "the question: json: cannot unmarshal",
		`{"lab":"knee"} {}`:       "something follows",
		`{"lab":"knee","wait":3}`: `unknown field "wait"`,
		`{"lab":"nope"}`:          `there is no lab "nope"; there are: knee`,
		`{"lab":"prefix","trace":{"name":"x","data":""}}`: "prefix takes no trace",
		`{"lab":"knee","settings":{"wait":"-1"}}`:         `wait is "-1"; allowed: a number from`,
		`{"lab":"knee","settings":{"nope":"1"}}`:          "one of the settings wait",
		`{"lab":"routing","seeds":1000}`:                  "seeds is 1000; a page may ask routing for 1 to 100",
		`{"lab":"routing","seeds":-1}`:                    "seeds is -1; allowed: 1 to",
	} {
		status, body := post(t, s.URL+"/v1/labs", question)
		var refused struct{ Error string }
		if err := json.Unmarshal([]byte(body), &refused); err != nil || status != http.StatusUnprocessableEntity || !strings.Contains(refused.Error, want) {
			t.Errorf("%s: %d %s; want %q", question, status, body, want)
		}
	}
	status, body := post(t, s.URL+"/v1/labs", strings.Repeat("x", lab.MaxAsked+1))
	if status != http.StatusRequestEntityTooLarge || !strings.Contains(body, "allowed: 16777216 bytes") {
		t.Errorf("too large: %d %s", status, body)
	}
}

// TestLabs_WaitWithinABound: while one runs a few wait, and who comes then is told so.
func TestLabs_WaitWithinABound(t *testing.T) {
	u := newRuns()
	for range mostQuestions {
		u.wait <- struct{}{}
	}
	w := httptest.NewRecorder()
	u.ask(w, httptest.NewRequest(http.MethodPost, "/v1/labs", strings.NewReader(`{"lab":"knee"}`)))
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
	<-u.wait
	w = httptest.NewRecorder()
	u.ask(w, httptest.NewRequest(http.MethodPost, "/v1/labs", strings.NewReader(`{"lab":"knee"}`)))
	if w.Code != http.StatusOK || len(u.wait) != mostQuestions-1 || len(u.one) != 0 {
		t.Errorf("%d; %d wait, %d run", w.Code, len(u.wait), len(u.one))
	}
}

// TestLabs_AnAnswerThatTookLong_StillGoes: the admin listener gives a question and its answer a
// minute from the request's beginning, and questions wait for each other.
func TestLabs_AnAnswerThatTookLong_StillGoes(t *testing.T) {
	u := newRuns()
	s := httptest.NewUnstartedServer(http.HandlerFunc(u.ask))
	s.Config.WriteTimeout, s.Config.ReadTimeout = 50*time.Millisecond, 50*time.Millisecond
	s.Start()
	defer s.Close()
	u.one <- struct{}{} // another one runs
	time.AfterFunc(4*s.Config.WriteTimeout, func() { <-u.one })
	if status, body := post(t, s.URL, `{"lab":"knee"}`); status != http.StatusOK || !strings.Contains(body, `"lab":"knee"`) {
		t.Errorf("%d %.200s", status, body)
	}
}

// TestLabs_AQuestionOutlastsTheReadDeadline: the deadline is for the question's coming. Past it
// the server still reads ahead, and must not take the client for gone.
func TestLabs_AQuestionOutlastsTheReadDeadline(t *testing.T) {
	u := newRuns()
	deadlines := &deadlines{ResponseRecorder: httptest.NewRecorder()}
	u.ask(deadlines, httptest.NewRequest(http.MethodPost, "/v1/labs", strings.NewReader(`{"lab":"knee"}`)))
	if d := deadlines.read; len(d) != 2 || time.Until(d[0]) <= 0 || time.Until(d[0]) > sending || !d[1].IsZero() {
		t.Errorf("read deadlines %v; want one within %v, then none", d, sending)
	}
	if d := deadlines.write; len(d) != 1 || time.Until(d[0]) <= 0 || time.Until(d[0]) > sending {
		t.Errorf("write deadlines %v; want one within %v", d, sending)
	}
}

// deadlines records those that are set.
type deadlines struct {
	*httptest.ResponseRecorder
	read, write []time.Time
}

func (d *deadlines) SetReadDeadline(t time.Time) error  { d.read = append(d.read, t); return nil }
func (d *deadlines) SetWriteDeadline(t time.Time) error { d.write = append(d.write, t); return nil }

// TestLabs_SlowSendersHoldNoPlace among those that wait.
func TestLabs_SlowSendersHoldNoPlace(t *testing.T) {
	u := newRuns()
	s := httptest.NewServer(http.HandlerFunc(u.ask))
	t.Cleanup(s.Close) // after the connections, for which it waits
	send := func() net.Conn {
		c, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		if _, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"); err != nil {
			t.Fatal(err)
		}
		return c
	}
	reach := func(want int) {
		t.Helper()
		for end := time.Now().Add(10 * time.Second); u.held.Load() != int64(want); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%d bytes are held, want %d", u.held.Load(), want)
			}
		}
	}
	for range mostQuestions {
		send()
	}
	reach(mostQuestions)
	if status, body := post(t, s.URL, `{"lab":"knee"}`); status != http.StatusOK {
		t.Errorf("%d %s beside those that send nothing", status, body)
	}
	// They have a bound of their own, and what is over is given back.
	for range mostExchanges - mostQuestions - 1 {
		send()
	}
	last := send()
	reach(mostExchanges)
	if status, body := post(t, s.URL, `{"lab":"knee"}`); status != http.StatusServiceUnavailable || !strings.Contains(body, "64 questions are being sent") {
		t.Errorf("%d %s beside %d", status, body, mostExchanges)
	}
	last.Close()
	reach(mostExchanges - 1)
}

// TestLabs_HoldWithinABound: the questions that are there have a bound in bytes together.
func TestLabs_HoldWithinABound(t *testing.T) {
	u := newRuns()
	ask := func() *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		u.ask(w, httptest.NewRequest(http.MethodPost, "/v1/labs", strings.NewReader(`{"lab":"knee"}`)))
		return w
	}
	question := int64(len(`{"lab":"knee"}`))
	u.held.Store(mostHeld - question)
	if w := ask(); w.Code != http.StatusOK || u.held.Load() != mostHeld-question {
		t.Errorf("%d; %d bytes are held", w.Code, u.held.Load())
	}
	u.held.Store(mostHeld - question + 1)
	if w := ask(); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" || u.held.Load() != mostHeld-question+1 {
		t.Errorf("%d %v; %d bytes are held", w.Code, w.Header(), u.held.Load())
	}
}

// TestLabs_SlowReadersHoldNoPlace: the next lab runs while an answer is still being written.
func TestLabs_SlowReadersHoldNoPlace(t *testing.T) {
	u := newRuns()
	slow := stuck{ResponseRecorder: httptest.NewRecorder(), writes: make(chan struct{}), free: make(chan struct{})}
	over := make(chan struct{})
	go func() {
		defer close(over)
		u.ask(slow, httptest.NewRequest(http.MethodPost, "/v1/labs", strings.NewReader(`{"lab":"knee"}`)))
	}()
	<-slow.writes
	if len(u.one) != 0 || len(u.wait) != 0 || len(u.exchanges) != 1 {
		t.Errorf("%d run, %d wait, %d are there", len(u.one), len(u.wait), len(u.exchanges))
	}
	close(slow.free)
	<-over
	if len(u.exchanges) != 0 || u.held.Load() != 0 {
		t.Errorf("%d are there, with %d bytes", len(u.exchanges), u.held.Load())
	}
}

// stuck is a client that reads nothing until it is freed.
type stuck struct {
	*httptest.ResponseRecorder
	writes, free chan struct{}
}

func (s stuck) Write(p []byte) (int, error) {
	close(s.writes)
	<-s.free
	return s.ResponseRecorder.Write(p)
}

func TestLabs_WhenOff_SaySo(t *testing.T) {
	s := serve(t, false)
	if r, body := get(t, s.URL+"/v1/labs"); r.StatusCode != http.StatusForbidden || !strings.Contains(body, "labs are off") {
		t.Errorf("%d %s", r.StatusCode, body)
	}
	if status, _ := post(t, s.URL+"/v1/labs", `{"lab":"knee"}`); status != http.StatusForbidden {
		t.Errorf("%d", status)
	}
}

// TestLabs_AreTurnedOffAndOn while the page is served.
func TestLabs_AreTurnedOffAndOn(t *testing.T) {
	var on atomic.Bool
	s := httptest.NewServer(Page(on.Load))
	defer s.Close()
	for _, want := range []int{http.StatusForbidden, http.StatusOK, http.StatusForbidden} {
		if r, _ := get(t, s.URL+"/v1/labs"); r.StatusCode != want {
			t.Errorf("list: %d, want %d", r.StatusCode, want)
		}
		if status, _ := post(t, s.URL+"/v1/labs", `{"lab":"knee"}`); status != want {
			t.Errorf("question: %d, want %d", status, want)
		}
		on.Store(!on.Load())
	}
}
