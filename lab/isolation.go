package lab

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"kvasir/accelerator"
	"kvasir/engine"
	"kvasir/internal/kvblock"
	"kvasir/internal/mono"
	"kvasir/internal/seed"
	"kvasir/internal/stats"
	"kvasir/selection"
	"kvasir/selection/policy"
	"kvasir/sim"
)

// isolation is article 13.2: what a tenant learns of others' prompts from its own times to
// first token, and what it costs to keep that from it.
type isolation struct {
	seeding

	replicas int
	tenants  int
	common   int
	document int
	rate     float64
	probes   int
}

func isolationLab() Lab {
	return Lab{
		Name: "isolation", Title: "what a tenant learns of others from its time to first token", Section: "13.2",
		About: "Tenants send prompts that begin with one system prompt and go on with a document, in half of them one that the tenant has sent before. Another tenant " +
			"guesses: every 400 ms it sends the system prompt and a document that somebody sent 1 to 20 s ago, or one that nobody did, in turn and each once, and wants to know from its time to first token which it was. " +
			"Engines are those of `kvasir sim` (llama-3.1-8b on h100), calls are placed by `predicted-ttft`. The classifier is a threshold, chosen on one half of the " +
			"guesses and judged on the other; a coin has 50 %. The distance is Kolmogorov and Smirnov's between the two distributions of times; that of equal " +
			"ones is above 0 as well, as samples are finite. The tenant may be in the routing key, which says where a call goes (`prefix.share: client`), in the cache key, which says what an engine shares " +
			"(vLLM's `cache_salt`, which `prefix.salt` sets), in both or in none. The article gives no figures of its own; the setting is ours.",
		Look: []string{
			"Without a tenant in any key a guess of a document that somebody sent comes back after 14 ms, any other after 68, and 85 % of the guesses are right.",
			"The routing key alone leaves 62 %: calls of others still warm the replicas. The cache key alone leaves 58 %, as the router goes on sending guesses where the document was, and that replica is busier.",
			"Both keys make it a coin, for 4 points of the tenants' cached tokens and 3 ms of their mean TTFT.",
			"Turn `document` down to 256 tokens: guesses are harder to tell apart, and 69 % are still right. Turn `replicas` to 1 and the routing key does nothing.",
		},
		Seeded: true,
		settings: func() experiment {
			return &isolation{replicas: 4, tenants: 8, common: 1024, document: 3072, rate: 6, probes: 200}
		},
	}
}

func (x *isolation) params() []Param {
	return []Param{
		count(&x.replicas, "replicas", "replicas", 1, 16),
		count(&x.tenants, "tenants", "tenants beside the one that guesses", 1, 64),
		count(&x.common, "common", "length of the system prompt that all share, tokens", 0, 8192),
		count(&x.document, "document", "length of a document, tokens", 64, 8192),
		number(&x.rate, "rate", "calls of the tenants together a second", 0.1, 20),
		count(&x.probes, "probes", "guesses", 8, 500),
	}
}

// The rows, by where the tenant is.
const (
	inNeither = iota
	inRouting
	inCache
	inBoth
	keyings
)

var keyingNames = [keyings]string{"neither", "the routing key", "the cache key", "both"}

// text is a part of a prompt: which one, and how many tokens of it.
type text struct{ id, tokens int }

// asked is a call of the lab.
type asked struct {
	at     mono.Time
	tenant int // 0 is the one that guesses
	parts  []text
	output int
	guess  bool
	sent   bool // of a guess: somebody had sent the document
}

const (
	probeEvery   = 400 * time.Millisecond
	oldestSecret = 20 * time.Second
	newestSecret = time.Second
	questionLen  = 64 // tokens behind the document, which no two calls have in common
	longAnswer   = 128
)

// draw returns a seed's calls in their order.
func (x *isolation) draw(root uint64) []asked {
	r := seed.New(root, seed.Workload, 0, 0)
	length := mono.Time(0).Add(oldestSecret + time.Duration(x.probes)*probeEvery)
	fresh := 0
	id := func() int { fresh++; return fresh } // 0 is the system prompt
	var calls []asked
	var secrets []text // documents as they were sent first
	var since []mono.Time
	own := make([][]text, x.tenants+1)
	ask := func(at mono.Time, tenant int, document text, output int) asked {
		return asked{at: at, tenant: tenant, parts: []text{{0, x.common}, document, {id(), questionLen}}, output: output}
	}
	for at := mono.Time(0); at < length; at = at.Add(mono.FromSeconds(r.Float64() * 2 / x.rate)) {
		tenant := 1 + r.Intn(x.tenants)
		document := text{id(), x.document}
		if n := len(own[tenant]); n > 0 && r.Intn(2) == 0 {
			document = own[tenant][r.Intn(n)]
		} else {
			own[tenant] = append(own[tenant], document)
			secrets, since = append(secrets, document), append(since, at)
		}
		calls = append(calls, ask(at, tenant, document, 1+r.Intn(longAnswer)))
	}
	guessed := map[int]bool{}
	for n := range x.probes {
		at := mono.Time(0).Add(oldestSecret + time.Duration(n)*probeEvery)
		document, sent := text{id(), x.document}, false
		if n%2 == 0 {
			var known []text
			for i, s := range secrets {
				if !guessed[s.id] && since[i] >= at.Add(-oldestSecret) && since[i] <= at.Add(-newestSecret) {
					known = append(known, s)
				}
			}
			if len(known) == 0 {
				continue // there is nothing to guess
			}
			document, sent = known[r.Intn(len(known))], true
			guessed[document.id] = true
		}
		c := ask(at, 0, document, 1)
		c.guess, c.sent = true, sent
		calls = append(calls, c)
	}
	slices.SortStableFunc(calls, func(a, b asked) int { return int(a.at - b.at) })
	return calls
}

// chain hashes a prompt's blocks from the seed on; end says where block n ends, in tokens.
func chain(from kvblock.Hash, parts []text, end func(n int) int) []kvblock.Hash {
	var blocks []kvblock.Hash
	var content []byte
	at, h := 0, from
	for _, p := range parts {
		for offset := 0; offset < p.tokens; { // a piece lies within one block
			piece := min(p.tokens-offset, end(len(blocks))-at)
			for _, n := range [...]int{p.id, offset, piece} {
				content = binary.LittleEndian.AppendUint32(content, uint32(n))
			}
			offset, at = offset+piece, at+piece
			if at == end(len(blocks)) {
				h = kvblock.Chain(h, content)
				blocks, content = append(blocks, h), content[:0]
			}
		}
	}
	return blocks
}

// fine is how many tokens a fine block of the router has.
const fine = 64

// call makes a call of the simulator.
func (a *asked) call(number int, engineBlock int, routing, cache int) sim.Call {
	key := func(apart int) kvblock.Hash {
		if apart == 0 {
			return kvblock.Seed("all")
		}
		return kvblock.Seed("tenant", fmt.Sprint(a.tenant))
	}
	tokens := 0
	for _, p := range a.parts {
		tokens += p.tokens
	}
	return sim.Call{
		At: a.at,
		Request: selection.Request{
			ID: selection.CallID(number + 1), Stream: true, InputTokens: tokens, OutputTokens: a.output, BlockTokens: fine,
			Blocks: chain(key(routing), a.parts, func(n int) int { return fine * kvblock.Span(n+1) }),
		},
		Prompt: engine.Request{
			PromptTokens: tokens, OutputTokens: a.output,
			Blocks: chain(key(cache), a.parts, func(n int) int { return engineBlock * (n + 1) }),
		},
	}
}

// observed is what a run shows.
type observed struct {
	sent, other []float64 // the guesses' times to first token in their order, ms
	cached      float64   // per cent of the other tenants' prompt tokens
	ttft        float64   // their mean, ms
}

// play runs a seed's calls with the tenant in the keys that the row names.
func (x *isolation) play(calls []asked, root uint64, keying int) observed {
	profile, err := accelerator.Lookup("llama-3.1-8b/h100")
	if err != nil {
		panic(err) // it is of the catalogue
	}
	rule, _ := policy.Lookup("predicted-ttft")
	s := sim.Scenario{Rule: rule, Scrape: time.Second, Seed: root}
	for range x.replicas {
		s.Engines = append(s.Engines, sim.Engine{Config: engine.Defaults(profile)})
	}
	s.Defaults()
	routing, cache := 0, 0
	if keying == inRouting || keying == inBoth {
		routing = 1
	}
	if keying == inCache || keying == inBoth {
		cache = 1
	}
	feed := make([]sim.Call, len(calls))
	for i := range calls {
		feed[i] = calls[i].call(i, s.Engines[0].Config.BlockTokens, routing, cache)
	}
	var o observed
	var prompt, cached, others int
	first := make([]float64, len(calls))
	cfg := sim.Config{
		Stopped: x.stopped,
		Engines: s.Engines, Routers: []sim.Router{s.Router(0)}, Feed: sim.Calls(feed),
		Ended: func(r *sim.Record) {
			i := int(r.Call) - 1
			first[i] = 1000 * r.First.Sub(r.At).Seconds()
			if !calls[i].guess {
				prompt, cached, others = prompt+r.Prompt, cached+r.Cached, others+1
				o.ttft += first[i]
			}
		},
	}
	if _, err := sim.Run(cfg); err != nil {
		x.fail(err) // it is stopped: the settings' bounds leave no room for a mistake
	}
	for i, c := range calls {
		switch {
		case c.guess && c.sent:
			o.sent = append(o.sent, first[i])
		case c.guess:
			o.other = append(o.other, first[i])
		}
	}
	o.ttft /= float64(others)
	o.cached = 100 * float64(cached) / float64(prompt)
	return o
}

// accuracy returns how many per cent of the guesses a threshold gets right, chosen on every
// other guess and judged on those between, and the other way round.
func (o *observed) accuracy() float64 {
	right := 0.0
	for fold := range 2 {
		train := observed{sent: every(o.sent, fold), other: every(o.other, fold)}
		judged := observed{sent: every(o.sent, 1-fold), other: every(o.other, 1-fold)}
		right += train.border().judge(&judged)
	}
	return 100 * right / 2
}

// every returns every other value, from the first or the second on.
func every(values []float64, from int) []float64 {
	var out []float64
	for i := from; i < len(values); i += 2 {
		out = append(out, values[i])
	}
	return out
}

// excess returns by how much the share of the guesses of sent documents that took no longer
// than at exceeds that of the others.
func (o *observed) excess(at float64) float64 {
	share := func(values []float64) float64 {
		n := 0
		for _, v := range values {
			if v <= at {
				n++
			}
		}
		return float64(n) / float64(max(len(values), 1))
	}
	return share(o.sent) - share(o.other)
}

// border is a time that tells two kinds of guesses apart.
type border struct {
	at       float64
	later    bool    // those that were sent take longer: they go where it is busy
	distance float64 // greatest difference of the cumulated shares of the two kinds
}

// border returns the one that tells best.
func (o *observed) border() border {
	best := border{distance: -1}
	for _, v := range slices.Concat(o.sent, o.other) {
		switch e := o.excess(v); {
		case e > best.distance:
			best = border{at: v, distance: e}
		case -e > best.distance:
			best = border{at: v, later: true, distance: -e}
		}
	}
	return best
}

// judge returns which share of guesses it gets right: the mean over the two kinds, so that
// nothing is won by saying the same of all.
func (t border) judge(o *observed) float64 {
	if t.later {
		return (1 - o.excess(t.at)) / 2
	}
	return (1 + o.excess(t.at)) / 2
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return stats.Quantile(sorted, 0.5)
}

func (x *isolation) run(seeds int) Findings {
	var accuracy, distance, sent, other, cached, ttft [keyings][]float64
	for s := range seeds {
		calls := x.draw(x.root(s))
		for k := range keyings {
			o := x.play(calls, x.root(s), k)
			accuracy[k], distance[k] = append(accuracy[k], o.accuracy()), append(distance[k], o.border().distance)
			sent[k], other[k] = append(sent[k], median(o.sent)), append(other[k], median(o.other))
			cached[k], ttft[k] = append(cached[k], o.cached), append(ttft[k], o.ttft)
		}
	}
	t := Table{Name: "keys", Title: "what a guess tells, by where the tenant is", Columns: []Column{{Name: "tenant in"}, {Name: "right guesses", Unit: "%"}, {Name: "distance"},
		{Name: "median TTFT, sent", Unit: "ms"}, {Name: "median TTFT, not sent", Unit: "ms"}, {Name: "tenants' tokens cached", Unit: "%"}, {Name: "tenants' mean TTFT", Unit: "ms"}}}
	for k := range keyings {
		t.Rows = append(t.Rows, []Cell{Text(keyingNames[k]), Mean(accuracy[k], 1), Mean(distance[k], 2), Mean(sent[k], 1), Mean(other[k], 1), Mean(cached[k], 1), Mean(ttft[k], 1)})
	}
	plots := []Plot{plotGuesses(accuracy), x.plotTimes()}
	coin := slices.Repeat([]float64{50}, seeds)
	return Findings{Tables: []Table{t}, Plots: plots, Verdicts: []Verdict{
		above("13.2", "a cache hit is observable as a shorter TTFT", other[inNeither], sent[inNeither], 1, " ms"),
		above("13.2", "a classifier on timing tells hits from misses", accuracy[inNeither], coin, 1, " points"),
		above("13.2", "the routing key alone does not isolate", accuracy[inRouting], coin, 1, " points"),
		near("13.2", "with the tenant in routing key and cache key guesses are a coin's", accuracy[inBoth], coin, 3, 1, " points"),
		above("13.2", "isolation lowers the hit rate", cached[inNeither], cached[inBoth], 1, " points"),
	}}
}

// plotGuesses draws how many guesses are right.
func plotGuesses(accuracy [keyings][]float64) Plot {
	p := Plot{Name: "guesses", Title: "right guesses by where the tenant is", Kind: Bars, X: Axis{Label: "tenant in", Names: keyingNames[:]}, Y: Axis{Label: "right guesses", Unit: "%", Most: 100},
		Marks: []Mark{{"y", 50, "a coin"}}, Series: []Series{bars("right guesses", accuracy[:]...)}}
	p.Says = fmt.Sprintf("With the tenant in neither key %s %% of the guesses are right, in both %s %%.", decimal(average(accuracy[inNeither]), 0), decimal(average(accuracy[inBoth]), 0))
	return p
}

// plotTimes draws the two distributions of times on the first seed, without a tenant in any key
// and with it in both.
func (x *isolation) plotTimes() Plot {
	p := Plot{Name: "times", Title: "times to first token of guesses, first seed", Kind: Steps, X: Axis{Label: "TTFT", Unit: "ms"}, Y: Axis{Label: "guesses that took no longer", Unit: "%", Most: 100}}
	calls := x.draw(x.root(0))
	medians := map[int][2]float64{}
	for _, k := range []int{inNeither, inBoth} {
		o := x.play(calls, x.root(0), k)
		for i, values := range [][]float64{o.sent, o.other} {
			s := Series{Name: [...]string{"sent", "not sent"}[i] + ", tenant in " + keyingNames[k]}
			sorted := slices.Sorted(slices.Values(values))
			for n, v := range sorted {
				s.X, s.Y = append(s.X, v), append(s.Y, 100*float64(n+1)/float64(len(sorted)))
			}
			p.Series = append(p.Series, s)
		}
		medians[k] = [2]float64{median(o.sent), median(o.other)}
	}
	p.Says = fmt.Sprintf("Half of the guesses of sent documents take no longer than %s ms, of others %s ms; with the tenant in both keys %s and %s ms.",
		decimal(medians[inNeither][0], 0), decimal(medians[inNeither][1], 0), decimal(medians[inBoth][0], 0), decimal(medians[inBoth][1], 0))
	return p
}
