package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"kvasir/test/endurance/internal/client"
	"kvasir/test/endurance/internal/ledger"
	"kvasir/test/endurance/internal/upstream"
)

// caller makes calls. Everything follows from the run's seed and the call's number.
type caller struct {
	seed      uint64
	routes    []string          // those that the gateway has
	gzip      bool              // it takes compressed bodies
	tenants   bool              // it knows tenants, classes and keys
	keys      map[string]string // of personas, by name
	clientKey string            // of a gateway that asks for none
	canary    string            // in every prompt
	bound     time.Duration
}

// clientKinds are the kinds of clients and how often they are drawn.
var clientKinds = []struct {
	weight int
	name   string
	make   func(*caller, *rand.Rand, *ledger.Call) *client.Behaviour
}{
	{300, "plain", (*caller).plain},
	{30, "chunked body", (*caller).chunked},
	{20, "gzip body", (*caller).gzipped},
	{20, "expect continue", (*caller).expects},
	{40, "slow reader", (*caller).slowReader},
	{30, "slow sender", (*caller).slowSender},
	{2, "stuck", (*caller).stuck},
	{20, "pipelined garbage", (*caller).pipelined},
	{6, "pipelined, leaves", (*caller).pipelinedLeaves},
	{10, "lists models", (*caller).lists},
	{15, "leaves in the head", (*caller).leavesInHead},
	{20, "leaves in the body", (*caller).leavesInBody},
	{70, "leaves after a while", (*caller).leavesAfter},
	{50, "leaves mid-answer", (*caller).leavesMid},
	{20, "half closes", (*caller).halfCloses},
	{15, "bad JSON", (*caller).badJSON},
	{15, "wrong model", (*caller).wrongModel},
	{15, "wrong route", (*caller).wrongRoute},
	{10, "oversize", (*caller).oversize},
	{12, "bad header", (*caller).badHeader},
	{8, "asks for too much", (*caller).raises},
	{8, "unknown key", (*caller).unknownKey},
	{8, "garbage", (*caller).garbage},
	{3, "stalled body", (*caller).stalledBody},
	{3, "stalled head", (*caller).stalledHead},
}

// call makes call number n and how its client behaves.
func (s *caller) call(n uint64) (*ledger.Call, *client.Behaviour) {
	r := rand.New(rand.NewPCG(s.seed, n<<8))
	c := &ledger.Call{ID: fmt.Sprintf("soak-%d", n), Number: n}
	total := 0
	for _, k := range clientKinds {
		total += k.weight
	}
	k := r.IntN(total)
	for _, kind := range clientKinds {
		if k -= kind.weight; k < 0 {
			c.Kind = kind.name
			s.ask(r, c)
			s.identify(rand.New(rand.NewPCG(s.seed, n<<8|0xff)), c)
			return c, kind.make(s, r, c)
		}
	}
	panic("unreachable: the weights add up")
}

// ask fills in what the client asks for.
func (s *caller) ask(r *rand.Rand, c *ledger.Call) {
	names := []string{"alpha", "alpha", "beta", "beta-alias", "gamma", "narrow", calm}
	c.Model = names[r.IntN(len(names))]
	c.Route = s.routes[0]
	if r.IntN(3) == 0 {
		c.Route = s.routes[r.IntN(len(s.routes))]
	}
	c.Stream = upstream.Streams(c.Route) && r.IntN(3) > 0
	size := r.IntN(2000)
	if r.IntN(10) == 0 {
		size = r.IntN(60000)
	}
	text := s.canary + " " + strings.Repeat("Tell me of the "+[]string{"well", "mead", "wolf", "ash"}[r.IntN(4)]+".\\n ", size/20+1)
	c.Body = []byte(s.body(c, text))
}

// body writes the JSON of a call; the model stands first, in the middle or last.
func (s *caller) body(c *ledger.Call, text string) string {
	stream := ""
	if c.Stream {
		stream = `,"stream":true`
	}
	name := `"model":"` + c.Model + `"`
	switch c.Route {
	case "/v1/completions":
		return fmt.Sprintf(`{"prompt":"%s",%s%s,"max_tokens":16}`, text, name, stream)
	case "/v1/embeddings":
		return fmt.Sprintf(`{"input":["%s"],%s}`, text, name)
	case "/v1/responses":
		return fmt.Sprintf(`{%s,"input":"%s"%s}`, name, text, stream)
	case "/v1/messages":
		return fmt.Sprintf(`{%s,"max_tokens":16,"messages":[{"role":"user","content":"%s"}]%s}`, name, text, stream)
	case "/v1/rerank", "/v2/rerank", "/rerank":
		return fmt.Sprintf(`{"query":"%s","documents":["a","b"],%s}`, text, name)
	case "/v1/score", "/score":
		return fmt.Sprintf(`{"text_1":"%s","text_2":"b",%s}`, text, name)
	case "/tokenize":
		return fmt.Sprintf(`{%s,"prompt":"%s"}`, name, text)
	case "/detokenize":
		return fmt.Sprintf(`{%s,"tokens":[1,2]}`, name)
	}
	return fmt.Sprintf(`{"messages":[{"role":"system","content":"You are Mimir."},{"role":"user","content":"%s"}]%s,%s,"temperature":0.7}`, text, stream, name)
}

// head writes the request's head.
func (s *caller) head(c *ledger.Call, method, target string, lines ...string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: gateway\r\nX-Request-Id: %s\r\n", method, target, c.ID)
	fmt.Fprintf(&b, "Content-Type: application/json\r\nCookie: session=%s\r\nApi-Key: %s\r\n", s.clientKey, s.clientKey)
	if c.Key != "" {
		fmt.Fprintf(&b, "Authorization: Bearer %s\r\nX-Api-Key: %s\r\n", c.Key, c.Key)
	}
	lines = append(lines, c.Header...)
	for _, l := range lines {
		b.WriteString(l + "\r\n")
	}
	b.WriteString("\r\n")
	return b.Bytes()
}

// request is the whole request, with a content length.
func (s *caller) request(c *ledger.Call, body []byte, lines ...string) []byte {
	lines = append(lines, fmt.Sprintf("Content-Length: %d", len(body)))
	return append(s.head(c, "POST", c.Route, lines...), body...)
}

func (s *caller) plain(r *rand.Rand, c *ledger.Call) *client.Behaviour {
	explain := fmt.Sprintf("X-Kvasir-Explain: %d", r.IntN(2))
	return &client.Behaviour{Wire: s.request(c, c.Body, explain), Reuse: r.IntN(2) == 0}
}

func chunks(r *rand.Rand, body []byte) []byte {
	var b bytes.Buffer
	for len(body) > 0 {
		n := min(1+r.IntN(3000), len(body))
		fmt.Fprintf(&b, "%x\r\n%s\r\n", n, body[:n])
		body = body[n:]
	}
	b.WriteString("0\r\n\r\n")
	return b.Bytes()
}

func (s *caller) chunked(r *rand.Rand, c *ledger.Call) *client.Behaviour {
	return &client.Behaviour{Wire: append(s.head(c, "POST", c.Route, "Transfer-Encoding: chunked"), chunks(r, c.Body)...), Piece: 1 + r.IntN(2000), Reuse: r.IntN(2) == 0}
}

func (s *caller) gzipped(r *rand.Rand, c *ledger.Call) *client.Behaviour {
	if !s.gzip {
		c.Expect.Refused = []string{"bad_request", "unsupported_encoding"}
	}
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(c.Body) // a bytes.Buffer takes all
	_ = w.Close()
	return &client.Behaviour{Wire: s.request(c, b.Bytes(), "Content-Encoding: gzip")}
}

func (s *caller) expects(r *rand.Rand, c *ledger.Call) *client.Behaviour {
	return &client.Behaviour{Wire: s.request(c, c.Body, "Expect: 100-continue")}
}

func (s *caller) slowReader(r *rand.Rand, c *ledger.Call) *client.Behaviour {
	return &client.Behaviour{Wire: s.request(c, c.Body), Receive: 4096, ReadPiece: 200 + r.IntN(2000), ReadPause: time.Duration(1+r.IntN(10)) * time.Millisecond}
}

func (s *caller) slowSender(r *rand.Rand, c *ledger.Call) *client.Behaviour {
	wire := s.request(c, c.Body)
	return &client.Behaviour{Wire: wire, Piece: len(wire)/10 + 1, Pause: time.Duration(5+r.IntN(60)) * time.Millisecond}
}

// stuck does not read: the write timeout must end its call.
func (s *caller) stuck(r *rand.Rand, c *ledger.Call) *client.Behaviour {
	c.Route, c.Stream, c.Model = s.routes[0], true, "alpha"
	c.Body = []byte(s.body(c, s.canary+" everything"))
	c.Expect.Leaves, c.Expect.CutBy = true, writeTimeout*9/8+3*time.Second
	return &client.Behaviour{Wire: s.request(c, c.Body), Receive: 2048, Stuck: true, StuckFor: writeTimeout*9/8 + 3500*time.Millisecond}
}

func (s *caller) pipelined(r *rand.Rand, c *ledger.Call) *client.Behaviour {
	tails := []string{"\x00\x01\x02 nonsense\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", strings.Repeat("A", 5000), "\r\n\r\n\r\n"}
	return &client.Behaviour{Wire: s.request(c, c.Body), Tail: []byte(tails[r.IntN(len(tails))])}
}

// pipelinedLeaves sends a byte too many and leaves. Go's net/http, which reads one byte
// ahead to see a client go, has its byte and no longer looks: the call goes on until a write
// fails or a timeout ends it.
func (s *caller) pipelinedLeaves(r *rand.Rand, c *ledger.Call) *client.Behaviour {
	b := s.leavesAfter(r, c)
	b.Tail = []byte("\r\n")
	c.Expect.AbortIn = s.bound
	return b
}

func (s *caller) lists(r *rand.Rand, c *ledger.Call) *client.Behaviour {
	c.Expect.Unrecorded, c.Expect.NoBody, c.Expect.Status = true, true, 200
	path := []string{"/v1/models", "/v1/models/alpha", "/v1/models/beta-alias", "/v1/models?limit=7"}[r.IntN(4)]
	return &client.Behaviour{Wire: s.head(c, "GET", path), Reuse: true}
}

func how(r *rand.Rand) client.How { return []client.How{client.FIN, client.RST}[r.IntN(2)] }

func (s *caller) leavesInHead(r *rand.Rand, c *ledger.Call) *client.Behaviour {
	c.Expect.Leaves, c.Expect.Unrecorded = true, true
	head := s.head(c, "POST", c.Route, fmt.Sprintf("Content-Length: %d", len(c.Body)))
	return &client.Behaviour{Wire: head, Leave: client.InRequest, Bytes: r.IntN(len(head) - 1), How: how(r)}
}

func (s *caller) leavesInBody(r *rand.Rand, c *ledger.Call) *client.Behaviour {
	c.Expect.Leaves, c.Expect.MayUnrecord = true, true
	wire := s.request(c, c.Body)
	head := bytes.Index(wire, []byte("\r\n\r\n")) + 4
	return &client.Behaviour{Wire: wire, Leave: client.InRequest, Bytes: head + r.IntN(len(c.Body)), How: how(r), Pause: time.Duration(r.IntN(20)) * time.Millisecond}
}

func (s *caller) leavesAfter(r *rand.Rand, c *ledger.Call) *client.Behaviour {
	c.Expect.Leaves, c.Expect.MayUnrecord = true, true // a reset may overtake the request
	d := time.Duration(r.IntN(60)) * time.Millisecond
	if r.IntN(3) == 0 {
		d = time.Duration(r.IntN(600)) * time.Millisecond
	}
	return &client.Behaviour{Wire: s.request(c, c.Body), Leave: client.AfterTime, Delay: d, How: how(r)}
}

func (s *caller) leavesMid(r *rand.Rand, c *ledger.Call) *client.Behaviour {
	c.Expect.Leaves = true
	return &client.Behaviour{Wire: s.request(c, c.Body), Leave: client.AfterBody, Bytes: r.IntN(3000), Delay: 2 * time.Second, How: how(r), ReadPiece: 512}
}

func (s *caller) halfCloses(r *rand.Rand, c *ledger.Call) *client.Behaviour {
	c.Expect.Leaves = true
	return &client.Behaviour{Wire: s.request(c, c.Body), Leave: client.AfterTime, Delay: time.Duration(r.IntN(60)) * time.Millisecond, How: client.Half}
}

func (s *caller) badJSON(r *rand.Rand, c *ledger.Call) *client.Behaviour {
	c.Expect.Refused = []string{"bad_request"}
	bodies := []string{"", "{", "[]", "null", `{"model":"alpha"`, `{"model":"alpha","model":"beta","messages":[],"prompt":"","input":""}`,
		`{"model":7}`, `{"model":"alpha","stream":"yes"}`, `{"messages":[]}`, "\xff\xfe", strings.Repeat("[", 20000), `{"model":"alpha"}}`}
	c.Route = s.routes[0]
	return &client.Behaviour{Wire: s.request(c, []byte(bodies[r.IntN(len(bodies))])), Reuse: r.IntN(2) == 0}
}

// wrongModel asks for a name that is new each time: none may become a series.
func (s *caller) wrongModel(r *rand.Rand, c *ledger.Call) *client.Behaviour {
	c.Expect.Refused = []string{"unknown_model"}
	c.Model = fmt.Sprintf("model-%x", r.Uint64())
	return &client.Behaviour{Wire: s.request(c, []byte(s.body(c, "hi"))), Reuse: true}
}

func (s *caller) wrongRoute(r *rand.Rand, c *ledger.Call) *client.Behaviour {
	c.Expect.Unrecorded = true
	method := []string{"POST", "GET", "DELETE", "PROPFIND"}[r.IntN(4)]
	return &client.Behaviour{Wire: s.head(c, method, fmt.Sprintf("/v1/nothing/%x", r.Uint64()), "Content-Length: 0"), Reuse: r.IntN(2) == 0}
}

// oversize sends more than one body may have; it must be able to read why.
func (s *caller) oversize(r *rand.Rand, c *ledger.Call) *client.Behaviour {
	c.Expect.Refused = []string{"body_too_large"}
	c.Route = s.routes[0]
	body := []byte(s.body(c, strings.Repeat("x", bodyLimit+r.IntN(bodyLimit))))
	if r.IntN(2) == 0 {
		return &client.Behaviour{Wire: append(s.head(c, "POST", c.Route, "Transfer-Encoding: chunked"), chunks(r, body)...)}
	}
	return &client.Behaviour{Wire: s.request(c, body)}
}

// badHeader says something of the call that can't be read.
func (s *caller) badHeader(r *rand.Rand, c *ledger.Call) *client.Behaviour {
	if !s.tenants {
		return s.plain(r, c)
	}
	c.Expect.Refused = []string{"bad_request"}
	c.Header = []string{badHeaders[r.IntN(len(badHeaders))]}
	return &client.Behaviour{Wire: s.request(c, c.Body), Reuse: r.IntN(2) == 0}
}

// raises asks for more than its tenant has.
func (s *caller) raises(r *rand.Rand, c *ledger.Call) *client.Behaviour {
	if !s.tenants {
		return s.plain(r, c)
	}
	c.Expect.Refused = []string{"bad_request"}
	c.Key, c.Tenant = s.keys["nightly"], "research"
	c.Header = [][]string{{"x-kvasir-class: " + urgentClass}, {"x-kvasir-class: interactive"}, {"x-kvasir-priority: 0"}, {"x-kvasir-priority: 8"}}[r.IntN(4)]
	return &client.Behaviour{Wire: s.request(c, c.Body), Reuse: r.IntN(2) == 0}
}

// unknownKey shows a key that nobody has.
func (s *caller) unknownKey(r *rand.Rand, c *ledger.Call) *client.Behaviour {
	if !s.tenants {
		return s.plain(r, c)
	}
	c.Expect.Refused = []string{"unauthorized"}
	c.Key, c.Tenant = s.clientKey, ""
	return &client.Behaviour{Wire: s.request(c, c.Body), Reuse: r.IntN(2) == 0}
}

func (s *caller) garbage(r *rand.Rand, c *ledger.Call) *client.Behaviour {
	c.Expect.Unrecorded, c.Expect.NoBody = true, true
	wires := []string{"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "POST\r\n\r\n", "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 7\r\n\r\nabcde",
		"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, identity\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("y", 100<<10) + "\r\n\r\n",
		"POST /v1/chat/completions HTTP/1.1\r\n\r\n"}
	return &client.Behaviour{Wire: []byte(wires[r.IntN(len(wires))] + "\n\n")}
}

func (s *caller) stalledBody(r *rand.Rand, c *ledger.Call) *client.Behaviour {
	c.Expect.Refused = []string{"bad_request", "body_too_slow"}
	wire := s.request(c, c.Body)
	return &client.Behaviour{Wire: wire, Stall: len(wire) - 1 - r.IntN(len(c.Body)-1)}
}

func (s *caller) stalledHead(r *rand.Rand, c *ledger.Call) *client.Behaviour {
	c.Expect.Unrecorded, c.Expect.NoBody = true, true
	return &client.Behaviour{Wire: s.request(c, c.Body), Stall: 20 + r.IntN(60)}
}
