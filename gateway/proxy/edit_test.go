package proxy

import (
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
	c := &call{svc: &service{}, route: byPath["/v1/chat/completions"], asked: q, scratch: newScratch(), body: &body{data: data}}
	for name, most := range map[string]float64{"m": 0, "other": 1} { // the name itself
		e := &endpoint{pool: &pool{servedAs: name, Pool: Pool{Dialect: upstream.VLLM()}}}
		if n := testing.AllocsPerRun(100, func() { c.edit(e) }); n > most {
			t.Errorf("served as %s: %v allocations", name, n)
		}
	}
}
