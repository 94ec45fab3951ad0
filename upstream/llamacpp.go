package upstream

import (
	"encoding/json"
	"strconv"

	"kvasir/internal/mono"
	"kvasir/selection/signal"
	"kvasir/upstream/exposition"
)

// LlamaCPP returns the dialect of llama.cpp's server (tools/server). Its metrics page is
// served with --metrics only and has no labels; its slots are served unless --no-slots
// is given, and by older releases with --slots only.
//
// A call has a slot while it runs; others are deferred. The metrics don't tell how full
// the KV cache is, so the share in use is made of the slots:
//
//	Σ min(cached + processed + decoded, n_ctx) over busy slots / Σ n_ctx over all slots
//
//	cached     tokens of the call's prompt that the slot still had
//	processed  tokens of the prompt that were computed
//	decoded    tokens generated
//	n_ctx      tokens of context that the slot may have
//
// n_prompt_tokens isn't used, for what it counts changed: first the prompt alone, then
// all that is in the slot. What an idle slot still holds is only cached and counts as
// free. With a unified KV cache (the default where the number of slots isn't given)
// every slot may fill the whole cache, which the server doesn't tell; the share and the
// capacity are those of all slots' contexts then, so the share is a lower bound. A slot
// of a release that doesn't count cached tokens makes it unknown.
//
// Prompts are looked up in the slots' caches, so prompt tokens are those computed plus
// those cached, which releases before August 2026 don't count. The header
// Process-Start-Time-Unix, despite its name, has microseconds of the host's monotonic
// clock.
func LlamaCPP() Dialect {
	return Dialect{
		Name: "llamacpp", HealthPath: "/health", MetricsPath: "/metrics", ReadLoad: readLlamaCPP,
		LoadPages: []LoadPage{{Path: "/slots", Read: readLlamaCPPSlots}},
	}
}

func llamacppNumber(name []byte) number {
	name, ok := cutPrefix(name, "llamacpp")
	if !ok {
		return unwanted
	}
	switch string(name) {
	case "requests_processing":
		return running
	case "requests_deferred":
		return waiting
	case "tokens_predicted_total":
		return generated
	case "prompt_tokens_total":
		return prefixQueries // those computed, until the cached ones are added
	case "prompt_tokens_cached_total":
		return prefixHits
	}
	return unwanted
}

func readLlamaCPP(page Page, at mono.Time) (signal.Load, Report) {
	var room [16]sample
	t := tally{samples: room[:0]}
	s := exposition.NewScanner(page.Body, func(name []byte) bool { return llamacppNumber(name) != unwanted })
	for s.Scan() {
		t.report.Samples++
		t.add(sample{number: llamacppNumber(s.Name()), rank: noRank, value: s.Value()}, 0, countMax)
	}
	t.report.BadLines = s.Bad()
	if text := page.header("Process-Start-Time-Unix"); text != "" {
		v, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			t.refuse(started, 0)
		} else {
			t.add(sample{number: started, rank: noRank, value: float64(v)}, 1, countMax)
		}
	}
	l, report := t.load(at)
	if l.PrefixHits.Known && l.PrefixQueries.Known {
		l.PrefixQueries.Value += l.PrefixHits.Value
	} else {
		l.PrefixQueries = signal.Gauge{}
	}
	return l, report
}

// llamacppSlot is what /slots says of a slot. It may also have the prompt's text, which
// nobody looks at here.
type llamacppSlot struct {
	Context   jsonNumber      `json:"n_ctx"`
	Busy      json.RawMessage `json:"is_processing"`
	Cached    jsonNumber      `json:"n_prompt_tokens_cache"`
	Processed jsonNumber      `json:"n_prompt_tokens_processed"`
	NextToken json.RawMessage `json:"next_token"` // an object, or since 2025 a list of one
}

func readLlamaCPPSlots(page Page, at mono.Time) (signal.Load, Report) {
	var slots []llamacppSlot
	if err := json.Unmarshal(page.Body, &slots); err != nil {
		return unreadable()
	}
	var t tally
	busy, used, context := 0, 0.0, 0.0
	busyTold, usedTold, contextTold := len(slots) > 0, true, len(slots) > 0
	for i := range slots {
		s := &slots[i]
		t.report.Samples++
		switch string(s.Busy) {
		case "true":
			busy++
			v, ok := s.used()
			used, usedTold = used+v, usedTold && ok
		case "false":
		default:
			busyTold = false
			t.report.BadValues++
		}
		if !s.Context.usable() || s.Context.value == 0 {
			contextTold = false
			t.report.BadValues++
			continue
		}
		context += s.Context.value
	}
	if busyTold {
		t.add(sample{number: running, rank: noRank, value: float64(busy)}, 0, countMax)
	}
	if contextTold {
		if busyTold && usedTold {
			t.add(sample{number: kvUsage, rank: noRank, value: used / context}, 0, 1)
		}
		t.add(sample{number: kvBlocks, rank: noRank, value: context}, 1, countMax)
		t.add(sample{number: blockTokens, rank: noRank, value: 1}, 1, 1)
	}
	return t.load(at)
}

// used returns how many tokens a busy slot holds, and whether it tells.
func (s *llamacppSlot) used() (tokens float64, told bool) {
	decoded := nextToken(s.NextToken)
	if !s.Cached.usable() || !s.Processed.usable() || !decoded.usable() {
		return 0, false
	}
	// With context shift more may have gone through the slot than it holds.
	return min(s.Cached.value+s.Processed.value+decoded.value, s.Context.value), true
}

// nextToken returns n_decoded.
func nextToken(text json.RawMessage) jsonNumber {
	var next struct {
		Decoded jsonNumber `json:"n_decoded"`
	}
	if list := []json.RawMessage(nil); len(text) > 0 && text[0] == '[' {
		if json.Unmarshal(text, &list) != nil || len(list) != 1 {
			return jsonNumber{}
		}
		text = list[0]
	}
	if json.Unmarshal(text, &next) != nil {
		return jsonNumber{}
	}
	return next.Decoded
}
