package api

import (
	"strings"
	"testing"

	"kvasir/internal/kvblock"
)

// A body of a million empty images costs neither their room nor their hashing.
func TestPrompt_ManyMediaAreBounded(t *testing.T) {
	body := []byte(`{"model":"m","messages":[{"role":"user","content":[` + strings.Repeat(`{"type":"image_url"},`, 200_000) + `{"type":"text","text":"x"}]}]}`)
	var r Reader
	var w kvblock.Writer
	if _, err := r.Read(Chat, body); err != nil {
		t.Fatal(err)
	}
	p, err := r.Prompt(&w, "m", "", 256)
	if err != nil {
		t.Fatal(err)
	}
	if most := mostMedia*MediaTokens + 200_000*4; p.InputTokens > most || len(p.Blocks) > kvblock.MostBlocks {
		t.Errorf("%d tokens in %d blocks; most %d", p.InputTokens, len(p.Blocks), most)
	}
}
