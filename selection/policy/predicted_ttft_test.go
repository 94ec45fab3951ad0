package policy

import (
	"math"
	"slices"
	"testing"
	"time"

	"kvasir/internal/mono"
	"kvasir/internal/seed"
	"kvasir/selection"
	"kvasir/selection/pace"
)

// predicted returns the policy with its defaults, changed.
func predicted(change func(*PredictedTTFT)) *predictedTTFT {
	rule, _ := Lookup("predicted-ttft")
	c := rule.Params().(*PredictedTTFT)
	if change != nil {
		change(c)
	}
	return c.New().(*predictedTTFT)
}

// prompt8010 is a call of 8,010 tokens, of which 50 blocks of 80 tokens may be cached.
func prompt8010(id int) *selection.Request {
	q := newRequest(id, 50)
	q.InputTokens, q.BlockTokens, q.Stream = 8010, 80, true
	return q
}

// wanting returns a view of n idle endpoints whose callers want 2 s and 100 ms.
func wanting(n int) *selection.View {
	v := newView(n)
	v.SLO = selection.SLO{TTFT: 2 * time.Second, TPOT: 100 * time.Millisecond}
	return v
}

// send books a call as the machine does, with its own work.
func send(v *selection.View, slot selection.Slot, q *selection.Request) {
	b, w := &v.Book[slot], q.Work(v.Overlap[slot])
	if b.Pending == 0 {
		b.Head, b.HeadSince = w, v.Now
	}
	b.Outstanding++
	b.Pending++
	b.OutstandingTokens += int64(q.InputTokens)
	b.PendingTokens += int64(q.InputTokens)
	b.PendingWork = b.PendingWork.Plus(w)
}

func isAbout(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-9*math.Max(1, math.Abs(want)) {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

// TestPredictedTTFTInNumbers goes by the model of which nothing is known: 20 ms a step and
// 10,000 tokens a second.
func TestPredictedTTFTInNumbers(t *testing.T) {
	const step = 0.02 / 0.1 // the call's own, in shares of 100 ms
	prefill := func(tokens float64) float64 { return tokens / 10_000 }
	price := func(busy float64) float64 { return 1.5 * busy / (1 - busy) }

	t.Run("what is cached need not be computed", func(t *testing.T) {
		v := wanting(2)
		v.Overlap[0] = 50
		c := pick(predicted(nil), v, prompt8010(1), 1)
		isAbout(t, "score 0", v.Scores[0], (prefill(4010)+0.02)/2+step)
		isAbout(t, "score 1", v.Scores[1], (prefill(8010)+0.02)/2+step)
		if c != (selection.Choice{Index: 0, Reason: ReasonNearest}) {
			t.Errorf("chose %+v", c)
		}
	})
	t.Run("what is pending comes first", func(t *testing.T) {
		v := wanting(2)
		v.Overlap[0] = 50
		v.Book[0] = selection.Book{
			Outstanding: 3, Pending: 2,
			PendingWork: selection.Work{Tokens: 8000}, Head: selection.Work{Tokens: 5000}, HeadSince: v.Now.Add(-200 * time.Millisecond),
		}
		c := pick(predicted(nil), v, prompt8010(1), 1)
		backlog := prefill(5000) - 0.2 + prefill(3000)
		imposed := 3 * 0.5 * prefill(4010) / 200 / 0.1
		busy := prefill(8000) / 30 // what is pending will have been done
		isAbout(t, "score 0", v.Scores[0], (backlog+(1+price(busy/2))*prefill(4010)+0.02)/2+step/(1-busy)+imposed)
		if c != (selection.Choice{Index: 1, Reason: ReasonElsewhere}) {
			t.Errorf("chose %+v", c)
		}
	})
	t.Run("a prefill that takes too long is over any moment", func(t *testing.T) {
		v := wanting(1)
		v.Book[0] = selection.Book{Pending: 2, PendingWork: selection.Work{Tokens: 8000}, Head: selection.Work{Tokens: 5000}, HeadSince: v.Now.Add(-time.Minute)}
		pick(predicted(nil), v, prompt8010(1), 1)
		busy := prefill(8000) / 30
		isAbout(t, "score", v.Scores[0], (prefill(3000)+(1+price(busy))*prefill(8010)+0.02)/2+step/(1-busy))
	})
	t.Run("work has its price where the pool is busy", func(t *testing.T) {
		p, v := predicted(nil), wanting(2)
		v.Overlap[0] = 50
		p.grow(1)
		p.done[0] = done{15 * math.E, v.Now.Add(-30 * time.Second)} // 15 are left after a window of 30
		pick(p, v, prompt8010(1), 1)
		isAbout(t, "score 0", v.Scores[0], ((1+price(0.25))*prefill(4010)+0.02)/2+step/(1-0.5))
		isAbout(t, "score 1", v.Scores[1], ((1+price(0.25))*prefill(8010)+0.02)/2+step)
	})
	t.Run("contexts make steps longer", func(t *testing.T) {
		p, v := predicted(nil), wanting(1)
		answer(p, pace.Model{Base: 0.01, Token: 1e-4, Context: 1e-7}, 4000)
		m := p.pace.Model()
		v.Book[0] = selection.Book{Outstanding: 10, OutstandingTokens: 100_000}
		p.output, p.done[0] = 200, done{}
		pick(p, v, prompt8010(1), 1)
		w, start, added := m.Prefill(selection.Prefill(8010, 0), 100_000), m.Step(100_000), m.Context*8010
		isAbout(t, "score", v.Scores[0], (w+start)/2+(start+added)/0.1+10*(0.5*w/200+added)/0.1)
		if math.Abs(start-0.02) > 0.002 || math.Abs(added-0.0008) > 0.0001 {
			t.Errorf("learned %+v", *m)
		}
	})
}

// answer tells the policy of n calls at slot 0, as answers report them.
func answer(p *predictedTTFT, m pace.Model, n int) {
	r := seed.New(2, seed.Pick, 1, 0)
	for range n {
		input := 100 + r.Intn(20_000)
		cached := r.Intn(input)
		e := selection.End{ShowsStart: true, Usage: selection.Usage{Known: true, CachedKnown: true, Prompt: input, Cached: cached, Output: 100}}
		e.Input, e.Own, e.Context = input, selection.Prefill(int64(input), 0), int64(r.Intn(200_000)) // believed to be cold, wrongly
		w := selection.Prefill(int64(input), int64(cached))
		e.TTFT = mono.FromSeconds(m.Step(e.Context) + m.Prefill(w, e.Context))
		e.Ended = e.At.Add(100 * time.Millisecond)
		p.LearnEnd(&e)
	}
}

// TestPredictedTTFTPredicts once it has learned, from what was cached in truth.
func TestPredictedTTFTPredicts(t *testing.T) {
	p, v := predicted(nil), wanting(1)
	if c := pick(p, v, prompt8010(1), 1); c.Predicted != 0 {
		t.Errorf("it predicts %v and knows nothing", c.Predicted)
	}
	truth := pace.Model{Base: 0.01, Token: 2e-5, Attention: 8e-10}
	answer(p, truth, 1000)
	v.Overlap[0] = 50
	want := truth.Base + truth.Prefill(selection.Prefill(8010, 4000), 0)
	if c := pick(p, v, prompt8010(1), 1); math.Abs(c.Predicted.Seconds()/want-1) > 0.05 {
		t.Errorf("it predicts %v, want %.4f s", c.Predicted, want)
	}
	if d, ok := p.PrefillTime(0, selection.Prefill(8010, 4000)); !ok || math.Abs(d.Seconds()/(want-truth.Base)-1) > 0.05 {
		t.Errorf("the prefill takes %v, want %.4f s", d, want-truth.Base)
	}
}

// TestPredictedTTFTLearnsFromCallsAlone: of one that waited for others its time says nothing
// of its own prefill; what is not reported is as it was believed.
func TestPredictedTTFTLearnsFromCallsAlone(t *testing.T) {
	p := predicted(nil)
	e := selection.End{}
	e.Input, e.Own, e.TTFT = 1000, selection.Prefill(1000, 0), time.Minute
	e.Ahead = selection.Work{Tokens: 1}
	for range 100 {
		p.LearnEnd(&e)
	}
	if p.pace.Known() {
		t.Error("it learned from a call that waited")
	}
	for _, c := range []struct {
		usage selection.Usage
		want  selection.Work
	}{
		{selection.Usage{}, e.Own},
		{selection.Usage{Known: true, Prompt: 500}, e.Own},
		{selection.Usage{Known: true, CachedKnown: true, Prompt: 500}, selection.Prefill(1000, 0)},
		{selection.Usage{Known: true, CachedKnown: true, Prompt: 500, Cached: 400}, selection.Prefill(1000, 800)},
		{selection.Usage{Known: true, CachedKnown: true}, e.Own},
	} {
		if got := actual(&selection.End{Sample: e.Sample, Usage: c.usage}); got != c.want {
			t.Errorf("%+v is a work of %+v, want %+v", c.usage, got, c.want)
		}
	}
}

// TestPredictedTTFTSpreadsABurst of 64 calls that share all but 100 of 16,000 tokens, which
// one endpoint of eight holds. In an idle pool others take a share; in a busy one, where the
// prefix would take time from calls to come, it keeps more of them.
func TestPredictedTTFTSpreadsABurst(t *testing.T) {
	burst := func(busy float64) (at0, most int) {
		p, v := predicted(nil), wanting(8)
		answer(p, pace.Model{Base: 0.008, Token: 2.1e-5, Attention: 7.85e-10, Context: 4e-8}, 1000)
		p.grow(7)
		for slot := range selection.Slot(8) {
			p.done[slot] = done{busy * 30, v.Now}
		}
		v.Overlap[0] = 50
		counts := make([]int, 8)
		for i := range 64 {
			q := newRequest(i, 50)
			q.InputTokens, q.BlockTokens, q.Stream = 16_000, 318, true
			slot := picked(p, v, q, i)
			send(v, slot, q)
			v.Overlap[slot] = 50 // the prefix is on its way there
			counts[slot]++
		}
		return counts[0], slices.Max(counts)
	}
	idle, most := burst(0)
	if idle < 8 || most > 32 {
		t.Errorf("of 64 calls %d went to the endpoint that holds the prefix, and at most %d to one", idle, most)
	}
	if full, _ := burst(0.8); full <= idle {
		t.Errorf("in a busy pool %d went to the endpoint that holds the prefix, in an idle one %d", full, idle)
	}
}

// TestPredictedTTFTGoesByTheMedianWithoutAnSLO.
func TestPredictedTTFTGoesByTheMedianWithoutAnSLO(t *testing.T) {
	p, r := predicted(nil), seed.New(4, seed.Pick, 1, 0)
	for range 3000 {
		e := selection.End{ShowsStart: true, Usage: selection.Usage{Known: true, Output: 11}}
		e.TTFT = mono.FromSeconds(0.4 * r.Float64())
		e.Ended = e.At.Add(mono.FromSeconds(10 * 0.04 * r.Float64()))
		e.Ahead.Tokens = 1 // what a step costs is not to be learned here
		p.LearnEnd(&e)
	}
	v, idle := newView(1), []outlook{{}}
	if d := p.standard(v, idle); math.Abs(d.ttft/0.2-1) > 0.15 || math.Abs(d.tpot/0.02-1) > 0.15 {
		t.Errorf("calls get %+v, want about 0.2 and 0.02 s", d)
	}
	v.SLO.TTFT = time.Second
	if d := p.standard(v, idle); d.ttft != 1 || math.Abs(d.tpot/0.02-1) > 0.15 {
		t.Errorf("with an SLO for one of them, calls are held to %+v", d)
	}
}

// TestPredictedTTFTForgets what endpoints were like and were given, not what work costs.
func TestPredictedTTFTForgets(t *testing.T) {
	p, v, q := predicted(nil), wanting(3), prompt8010(1)
	m := pace.Model{Base: 0.008, Token: 2.1e-5}
	r := seed.New(5, seed.Pick, 1, 0)
	for range 600 {
		e := selection.End{ShowsStart: true}
		e.Slot, e.Input, e.At = selection.Slot(r.Intn(3)), 2000+r.Intn(20_000), v.Now
		e.Own = selection.Prefill(int64(e.Input), 0)
		seconds := m.Step(0) + m.Prefill(e.Own, 0)
		if e.Slot == 0 {
			seconds *= 3
		}
		e.TTFT = mono.FromSeconds(seconds)
		p.LearnEnd(&e)
	}
	p.done[0] = done{10, v.Now}
	pick(p, v, q, 1)
	if v.Scores[0] < 1.5*v.Scores[1] {
		t.Fatalf("scores %v: the first endpoint takes three times as long, and has work", v.Scores)
	}
	p.Forget(0)
	p.Forget(50) // never heard of
	model := *p.pace.Model()
	pick(p, v, q, 2)
	if p.pace.Factor(0, v.Now) != 1 || p.before(v.Now, 0) != 0 || *p.pace.Model() != model {
		t.Errorf("factor %v, %v s of prefill, model %+v", p.pace.Factor(0, v.Now), p.before(v.Now, 0), *p.pace.Model())
	}
}

// TestPredictedTTFTCountsPrefillThatWasDone: a first token shows it, an answer in one piece does,
// and a call that ends without either has kept nobody busy.
func TestPredictedTTFTCountsPrefillThatWasDone(t *testing.T) {
	p, v := predicted(nil), wanting(2)
	q := prompt8010(1)
	pick(p, v, q, 1)
	if p.before(v.Now, 0) != 0 || p.before(v.Now, 1) != 0 {
		t.Error("a pick alone has made an endpoint busy")
	}
	s := selection.Sample{Slot: 1, At: v.Now, Input: q.InputTokens, Own: selection.Prefill(8010, 0), Ahead: selection.Work{Tokens: 1}}
	p.Learn(&s)
	isAbout(t, "prefill after a first token", p.before(v.Now, 1), 0.801)
	p.LearnEnd(&selection.End{Sample: s, ShowsStart: true})
	isAbout(t, "prefill after the end of that answer", p.before(v.Now, 1), 0.801)
	p.LearnEnd(&selection.End{Sample: s})
	isAbout(t, "prefill after an answer in one piece", p.before(v.Now, 1), 2*0.801)
}

// TestPredictedTTFTKeepsItsStandardWhereAnswersComeInOnePiece, as through a proxy that
// buffers: a time between tokens of nothing would make all else count for nothing.
func TestPredictedTTFTKeepsItsStandardWhereAnswersComeInOnePiece(t *testing.T) {
	p, now := predicted(nil), mono.Time(time.Hour)
	for range 2000 {
		p.LearnEnd(&selection.End{
			Sample: selection.Sample{At: now, TTFT: time.Second, Input: 1000, Own: selection.Prefill(1000, 0), Ahead: selection.Work{Tokens: 1}},
			Ended:  now.Add(20 * time.Microsecond), ShowsStart: true,
			Usage: selection.Usage{Known: true, Prompt: 1000, Output: 100},
		})
		now = now.Add(time.Millisecond)
	}
	v := newView(2)
	v.Now, v.Overlap[0] = now, 50
	v.Book[0].Outstanding, v.Book[0].OutstandingTokens = 1, 8010
	if c := pick(p, v, prompt8010(1), 1); c.Index != 0 {
		t.Errorf("half of the prompt is cached at 0, where one call decodes; costs %v, D_tpot %v s", v.Scores, float64(p.tpot))
	}
}

// TestPredictedTTFTKnowsShortAnswers: those of one token have a length, too.
func TestPredictedTTFTKnowsShortAnswers(t *testing.T) {
	p := predicted(nil)
	for range 1000 {
		p.LearnEnd(&selection.End{ShowsStart: true, Usage: selection.Usage{Known: true, Output: 1}})
	}
	if p.output > 1.1 {
		t.Errorf("after a thousand answers of one token their mean is %v", p.output)
	}
}
