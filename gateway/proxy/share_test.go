package proxy_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"testing"

	"kvasir/gateway/proxy"
)

// TestSharePrefixes_SaysWhoseCallsAreOverlap has two clients, and one with two keys, send the
// same long prompt: what one of them has sent is overlap for the other where they share.
func TestSharePrefixes_SaysWhoseCallsAreOverlap(t *testing.T) {
	const own, other, second = "key-of-a", "key-of-b", "second-key-of-a"
	for _, share := range []bool{false, true} {
		t.Run(fmt.Sprint(share), func(t *testing.T) {
			cached := 4000 // all, so that nothing corrects what is believed
			s := pooled(tells(&cached))
			s.policy = "cache-aware"
			s.config = func(c *proxy.Config) {
				c.SharePrefixes = share
				c.Access = proxy.Access{Anonymous: true, Explain: map[string]bool{"": true, "a": true, "b": true}, Keys: map[[sha256.Size]byte]string{
					sha256.Sum256([]byte(own)): "a", sha256.Sum256([]byte(second)): "a", sha256.Sum256([]byte(other)): "b",
				}}
			}
			r := newRig(t, s)
			defer r.close()
			overlap := func(headers ...string) int {
				t.Helper()
				return r.overlap(t, longCall, headers...)
			}
			if n := overlap("X-Api-Key: " + own); n != 0 {
				t.Errorf("%d blocks of what nobody sent", n)
			}
			all := overlap("X-Api-Key: " + second)
			if all < 50 {
				t.Errorf("another key of the same client finds %d blocks", all)
			}
			for _, headers := range [][]string{{"X-Api-Key: " + other}, nil} {
				if n := overlap(headers...); (n == all) != share || (n == 0) == share {
					t.Errorf("%v finds %d of %d blocks", headers, n, all)
				}
			}
		})
	}
}

// overlap sends a call to the only endpoint and returns how many of its blocks were believed to be
// there, once it has ended.
func (r *rig) overlap(t *testing.T, body string, headers ...string) int {
	t.Helper()
	text := r.post(chatPath, body, append(headers, "X-Kvasir-Explain: 1")...).header.Get("X-Kvasir-Explain")
	r.settle()
	var d struct {
		Candidates []struct {
			Overlap int `json:"overlap_blocks"`
		} `json:"candidates"`
	}
	if err := json.Unmarshal([]byte(text), &d); err != nil || len(d.Candidates) != 1 {
		t.Fatalf("%v: %s", err, text)
	}
	return d.Candidates[0].Overlap
}
