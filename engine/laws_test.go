package engine

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"kvasir/internal/kvblock"
	"kvasir/internal/mono"
)

// order is one command of a generated stream.
type order struct {
	at    mono.Time
	abort bool
	req   Request // of an abort: only the ID
	text  text
}

// stream is a generated engine and what it is asked.
type stream struct {
	cfg    Config
	orders []order // ascending instants; an abort comes after its submit
}

// drawStream makes small engines under pressure: few blocks, small budgets, shared
// prefixes, instants that often coincide with one another and with step ends.
func drawStream(t *rapid.T) stream {
	n := func(name string, lo, hi int) int { return rapid.IntRange(lo, hi).Draw(t, name) }
	cfg := small()
	cfg.BlockTokens = n("block tokens", 1, 6)
	cfg.NumBlocks = n("blocks", 4, 40)
	cfg.MaxBatchedTokens = n("budget", 3, 40)
	cfg.MaxSeqs = n("seqs", 1, min(8, cfg.MaxBatchedTokens))
	cfg.MaxModelLen = 60
	cfg.ChunkedPrefill = rapid.Bool().Draw(t, "chunked")
	if !cfg.ChunkedPrefill {
		cfg.Batching = Batching(n("batching", 0, 1))
	}
	cfg.PrefixCaching = rapid.Bool().Draw(t, "caching")
	if rapid.Bool().Draw(t, "lora") {
		cfg.LoRA = drawLoRA(t)
	}

	s := stream{cfg: cfg}
	room := min(cfg.MaxModelLen, cfg.NumBlocks*cfg.BlockTokens)
	at := mono.Time(0)
	for i := range n("requests", 1, 40) {
		// Steps take 1000+ whole microseconds, so whole-microsecond gaps hit their ends.
		at += microsecond * mono.Time(rapid.SampledFrom([]int{0, 0, 1, 7, 500, 1000, 1003, 1009, 5000, 30000}).Draw(t, "gap"))
		prompt := n("prompt", 1, room)
		output := n("output", 0, room-prompt)
		x := text{family: n("family", 0, 2), shared: n("shared", 0, 60), own: i}
		id := ID(rapid.IntRange(0, 4).Draw(t, "name")*100 + i)
		q := x.request(id, prompt, output, cfg.BlockTokens)
		if cfg.LoRA.MaxLoRAs > 0 {
			q.Adapter = kvblock.Hash(n("adapter", 0, adaptersDrawn-1))
		}
		s.orders = append(s.orders, order{at: at, req: q, text: x})
		if n("aborted", 0, 3) == 0 {
			after := microsecond * mono.Time(n("patience", 0, 20000))
			s.orders = append(s.orders, order{at: at + after, abort: true, req: Request{ID: id}})
		}
	}
	slices.SortStableFunc(s.orders, func(a, b order) int { return int(a.at - b.at) })
	return s
}

func give(t testing.TB, e *Engine, o order) {
	t.Helper()
	if o.abort {
		e.Abort(o.at, o.req.ID)
		return
	}
	mustSubmit(t, e, o.at, o.req)
}

// run plays the stream, advancing at every instant at which the engine has something
// to do, and checks the engine after each.
func (s *stream) run(t testing.TB, check func(*Engine)) ([]Output, *Engine) {
	t.Helper()
	e := mustNew(t, s.cfg)
	var all []Output
	until := func(limit mono.Time) {
		for {
			at, ok := e.Next()
			if !ok || at > limit {
				return
			}
			all = append(all, e.Advance(at)...)
			if check != nil {
				check(e)
			}
		}
	}
	for _, o := range s.orders {
		until(o.at)
		give(t, e, o)
	}
	until(mono.Never)
	return all, e
}

// testingTB lets helpers that want a testing.TB report to rapid.
type testingTB struct {
	testing.TB
	t *rapid.T
}

func (b testingTB) Helper()                      {}
func (b testingTB) Fatal(args ...any)            { b.t.Fatal(args...) }
func (b testingTB) Fatalf(f string, args ...any) { b.t.Fatalf(f, args...) }
func (b testingTB) Errorf(f string, args ...any) { b.t.Errorf(f, args...) }

func forStreams(t *testing.T, law func(t testing.TB, r *rapid.T, s stream)) {
	rapid.Check(t, func(r *rapid.T) { law(testingTB{TB: t, t: r}, r, drawStream(r)) })
}

// Blocks and requests are conserved, references match, budget and places are kept, and
// no step is missing while there is work: after every single step.
func TestLaw_EveryStepIsSound(t *testing.T) {
	forStreams(t, func(t testing.TB, _ *rapid.T, s stream) {
		var before Stats
		_, e := s.run(t, func(e *Engine) {
			audit(t, e)
			now := e.Stats()
			if now.Steps < before.Steps || now.GenerationTokens < before.GenerationTokens ||
				now.PrefixHits > now.PrefixQueries || now.Preemptions < before.Preemptions {
				t.Fatalf("counters went from %+v to %+v", before, now)
			}
			before = now
		})
		if len(e.live) != 0 || e.kv.free != s.cfg.NumBlocks {
			t.Fatalf("in the end %d requests are held and %d of %d blocks free", len(e.live), e.kv.free, s.cfg.NumBlocks)
		}
		if e.Stats().Running != 0 || e.Stats().Waiting != 0 || e.Stats().KVUsage != 0 {
			t.Fatalf("gauges of an engine without work: %+v", e.Stats())
		}
	})
}

// Every request ends exactly once: with all its tokens, or because it was aborted.
func TestLaw_NothingIsLost(t *testing.T) {
	forStreams(t, func(t testing.TB, _ *rapid.T, s stream) {
		outputs, e := s.run(t, nil)
		finished, tokens, prompts := map[ID]int{}, map[ID]int{}, int64(0)
		prompt := map[ID]int{}
		for _, o := range s.orders {
			if !o.abort {
				prompt[o.req.ID] = o.req.PromptTokens
			}
		}
		for _, o := range outputs {
			tokens[o.ID] += o.Tokens
			if o.First {
				prompts += int64(prompt[o.ID])
			}
			if o.Finished {
				finished[o.ID]++
			}
		}
		submitted, ended := 0, 0
		var generated int64
		for _, o := range s.orders {
			if o.abort {
				continue
			}
			submitted++
			ended += finished[o.req.ID]
			generated += int64(tokens[o.req.ID])
			aborted := slices.ContainsFunc(s.orders, func(x order) bool { return x.abort && x.req.ID == o.req.ID })
			switch {
			case finished[o.req.ID] > 1:
				t.Fatalf("%d finished %d times", o.req.ID, finished[o.req.ID])
			case finished[o.req.ID] == 1 && tokens[o.req.ID] != o.req.OutputTokens:
				t.Fatalf("%d finished with %d of %d tokens", o.req.ID, tokens[o.req.ID], o.req.OutputTokens)
			case finished[o.req.ID] == 0 && !aborted:
				t.Fatalf("%d is lost", o.req.ID)
			}
		}
		st := e.Stats()
		if int(st.Finished[Stop]) != ended || int(st.Finished[Abort]) != submitted-ended {
			t.Fatalf("%d submitted, %d ended, counted %v", submitted, ended, st.Finished)
		}
		if st.GenerationTokens != generated || st.PromptTokens != prompts {
			t.Fatalf("%d tokens generated of %d prompt tokens, counted %d and %d", generated, prompts, st.GenerationTokens, st.PromptTokens)
		}
	})
}

// Outputs come after the submit, in order, the first marked first and the last last;
// after an abort at most the step that was running still yields one.
func TestLaw_OutputsFollowTheirCause(t *testing.T) {
	forStreams(t, func(t testing.TB, _ *rapid.T, s stream) {
		outputs, _ := s.run(t, nil)
		for i := 1; i < len(outputs); i++ {
			if outputs[i].At < outputs[i-1].At {
				t.Fatalf("output at %d after one at %d", outputs[i].At, outputs[i-1].At)
			}
		}
		for _, o := range s.orders {
			seen, last, late := 0, mono.Time(-1), 0
			for _, x := range outputs {
				if x.ID != o.req.ID {
					continue
				}
				if !o.abort {
					if x.At <= o.at || x.At <= last {
						t.Fatalf("%d, submitted at %d: output at %d after one at %d", x.ID, o.at, x.At, last)
					}
					if x.First != (seen == 0) {
						t.Fatalf("%d: output %d says first: %v", x.ID, seen, x.First)
					}
				} else if x.At > o.at {
					late++
				}
				seen, last = seen+1, x.At
			}
			if late > 1 {
				t.Fatalf("%d: %d outputs after its abort at %d", o.req.ID, late, o.at)
			}
		}
	})
}

// A prefix hit is whole blocks, leaves a token to compute, and is no longer than what
// the text shares with some request before it.
func TestLaw_PrefixHitsAreReal(t *testing.T) {
	forStreams(t, func(t testing.TB, _ *rapid.T, s stream) {
		outputs, e := s.run(t, nil)
		total := int64(0)
		for _, x := range outputs {
			if !x.First {
				continue
			}
			i := slices.IndexFunc(s.orders, func(o order) bool { return !o.abort && o.req.ID == x.ID })
			q := s.orders[i]
			most := 0
			for _, o := range s.orders {
				if !o.abort && o.req.ID != q.req.ID && o.text.family == q.text.family {
					most = max(most, min(o.text.shared, q.text.shared))
				}
			}
			if !s.cfg.PrefixCaching {
				most = 0
			}
			if x.Cached%s.cfg.BlockTokens != 0 || x.Cached > min(most, q.req.PromptTokens-1) {
				t.Fatalf("%d: hit of %d tokens; block %d, shared %d, prompt %d", x.ID, x.Cached, s.cfg.BlockTokens, most, q.req.PromptTokens)
			}
			total += int64(x.Cached)
		}
		if total > e.Stats().PrefixHits {
			t.Fatalf("hits of %d tokens in outputs, counted %d", total, e.Stats().PrefixHits)
		}
	})
}

// What comes out depends on the commands and their instants alone: not on the order of
// the calls of one instant, nor on when Advance is called.
func TestLaw_OutputsDependOnCommandsAlone(t *testing.T) {
	forStreams(t, func(t testing.TB, r *rapid.T, s stream) {
		want, e := s.run(t, nil)
		same := func(how string, got []Output, stats Stats) {
			t.Helper()
			if !slices.Equal(got, want) || stats != e.Stats() {
				t.Fatalf("%s: %v %+v, want %v %+v", how, got, stats, want, e.Stats())
			}
		}
		again, a := s.run(t, nil)
		same("again", again, a.Stats())

		shuffled := stream{cfg: s.cfg, orders: shuffleInstants(r, s.orders)}
		got, b := shuffled.run(t, nil)
		same("in another order of calls", got, b.Stats())

		c := mustNew(t, s.cfg)
		got = nil
		for _, o := range s.orders {
			give(t, c, o)
			if rapid.IntRange(0, 3).Draw(r, "advance") == 0 {
				got = append(got, c.Advance(o.at)...)
			}
		}
		got = append(got, c.Advance(mono.Never)...)
		same("with late advances", got, c.Stats())
	})
}

// shuffleInstants permutes the commands of each instant, a request's abort staying
// behind its submit.
func shuffleInstants(r *rapid.T, orders []order) []order {
	var out []order
	for len(orders) > 0 {
		n := 1
		for n < len(orders) && orders[n].at == orders[0].at {
			n++
		}
		group := rapid.Permutation(orders[:n]).Draw(r, "order of calls")
		for i, o := range group {
			its := func(x order) bool { return !x.abort && x.req.ID == o.req.ID }
			if j := slices.IndexFunc(group, its); o.abort && j > i {
				group[i], group[j] = group[j], group[i]
			}
		}
		out, orders = append(out, group...), orders[n:]
	}
	return out
}
