package proxy

import (
	"net/http"
	"strings"
	"testing"

	"kvasir/api"
	"kvasir/upstream"
)

// TestEdit_WhenNothingChanges_DoesNotAllocate has a call that goes on as it came, and one
// whose model has another name.
func TestEdit_WhenNothingChanges_DoesNotAllocate(t *testing.T) {
	data := []byte(`{"model":"m","messages":[]}`)
	var r api.Reader
	q, err := r.Read(api.Chat, data)
	if err != nil {
		t.Fatal(err)
	}
	c := &call{svc: &service{}, route: byPath["/v1/chat/completions"], asked: q, scratch: newScratch(), try: newTry(), body: &body{data: data}}
	for name, most := range map[string]float64{"m": 0, "other": 1} { // the name itself
		e := &endpoint{pool: &pool{servedAs: name, Pool: Pool{Dialect: upstream.VLLM()}}}
		if n := testing.AllocsPerRun(100, func() { c.edit(e) }); n > most {
			t.Errorf("served as %s: %v allocations", name, n)
		}
	}
}

// TestConversation_DoesNotAllocate names a conversation by each of what can name one.
func TestConversation_DoesNotAllocate(t *testing.T) {
	long := strings.Repeat("0d7e7c52-9fd5-4f0c-9a43", 10)
	for name, c := range map[string]struct {
		header http.Header
		q      api.Request
	}{
		"header":   {http.Header{"X-Session-Id": {long}}, api.Request{}},
		"body":     {http.Header{}, api.Request{PromptCacheKey: []byte(long)}},
		"agent":    {http.Header{"X-Session-Affinity": {long}}, api.Request{}},
		"messages": {http.Header{}, api.Request{}},
	} {
		call := &call{in: &http.Request{Header: c.header}, scratch: newScratch(), try: newTry()}
		call.record.Client = long
		if call.conversation(&c.q, 5) == 0 {
			t.Fatalf("%s: no conversation", name)
		}
		if n := testing.AllocsPerRun(100, func() { call.conversation(&c.q, 5) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// BenchmarkEdit makes and sets a salt for one attempt of a call, or none.
func BenchmarkEdit(b *testing.B) {
	data := []byte(`{"model":"m","messages":[]}`)
	var r api.Reader
	q, err := r.Read(api.Chat, data)
	if err != nil {
		b.Fatal(err)
	}
	e := &endpoint{pool: &pool{servedAs: "m", Pool: Pool{Dialect: upstream.VLLM()}}}
	for name, key := range map[string]string{"plain": "", "salted": "the-gateways-own-secret"} {
		b.Run(name, func(b *testing.B) {
			c := &call{svc: &service{cfg: Config{SaltKey: []byte(key)}}, route: byPath["/v1/chat/completions"], asked: q, scratch: newScratch(), try: newTry(), body: &body{data: data}}
			b.ReportAllocs()
			for b.Loop() {
				c.salt = ""
				c.edit(e)
			}
		})
	}
}

// BenchmarkConversation names one by a header, as the slowest of all.
func BenchmarkConversation(b *testing.B) {
	c := &call{in: &http.Request{Header: http.Header{"X-Session-Affinity": {strings.Repeat("0d7e7c52", 8)}}}, scratch: newScratch(), try: newTry()}
	c.record.Client = "team-a"
	q := api.Request{}
	b.ReportAllocs()
	for b.Loop() {
		c.conversation(&q, 5)
	}
}
