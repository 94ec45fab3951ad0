package flow

import (
	"testing"
	"time"

	"kvasir/gateway/admission"
	"kvasir/gateway/attempt"
	"kvasir/internal/kvblock"
	"kvasir/internal/mono"
	"kvasir/internal/seed"
	"kvasir/selection"
	"kvasir/selection/signal"
)

// visit sends the machine one call of 40 blocks and ends it with what it is told of its
// prompt. It returns the call's decision and what became of trust.
func visit(t *testing.T, m *Machine, id, session int, u Usage) (*selection.Decision, []Action) {
	t.Helper()
	q := request(id)
	q.Blocks, q.BlockTokens, q.InputTokens = ofSession(session, 40), 64, 64*40+1
	now := m.last + 10
	a := only(t, m.Step(now, Arrive(q)))
	m.Step(now+1, FirstToken(a.Ticket, 0))
	m.Step(now+2, Done(a.Ticket, 0, attempt.Success, u))
	var changes []Action
	for _, x := range m.Step(now+3, Wake()) {
		if x.Kind == TrustChanged {
			changes = append(changes, x)
		}
	}
	return a.Decision, changes
}

func cachedTokens(blocks int) Usage {
	return Usage{Known: true, CachedKnown: true, Prompt: 64*40 + 1, Cached: 64 * blocks}
}

// lose has the endpoint answer calls of two sessions with nothing cached until what is
// believed of it is no longer relied on. It returns how many predictions that took.
func lose(t *testing.T, m *Machine) (predictions int64) {
	t.Helper()
	for i := range 10 * signal.TrustWindow {
		d, changes := visit(t, m, int(m.last), 100+i%2, cachedTokens(0))
		if k := d.Candidates[0]; k.Trust != "approximate" {
			t.Fatalf("call %d sees %s", i, k.Trust)
		} else if k.Overlap >= 39 {
			predictions++
		}
		if changes == nil {
			continue
		}
		a := changes[0]
		if len(changes) != 1 || a.Trust != signal.LoadOnly || a.Slot != 0 || a.Compared.Found != 0 || a.Compared.Predicted != signal.TrustWindow*signal.TrustMost {
			t.Fatalf("after %d predictions: %+v", predictions, changes)
		}
		return predictions
	}
	t.Fatal("trust is not lost")
	return 0
}

// TestTrust_OfAnEngineWithoutACache_IsLostAndComesBack has an endpoint that never finds what
// it has computed, until it is set right.
func TestTrust_OfAnEngineWithoutACache_IsLostAndComesBack(t *testing.T) {
	m := New(newConfig(newTestPool("p", &overlapping{}, "a")))
	if n := lose(t, m); n != signal.TrustWindow {
		t.Errorf("lost after %d predictions", n)
	}
	for i := 1; ; i++ {
		d, changes := visit(t, m, int(m.last), 1, cachedTokens(40))
		if k := d.Candidates[0]; k.Overlap != 0 || k.OverlapTokens != 0 || k.Trust != "load-only" || m.held[0] != 0 {
			t.Fatalf("call %d sees %d blocks, %s", i, k.Overlap, k.Trust)
		}
		if changes != nil {
			if changes[0].Trust != signal.Approximate || i < signal.TrustWindow {
				t.Fatalf("after %d predictions that came true: %+v", i, changes)
			}
			break
		}
		if i > 2*signal.TrustWindow {
			t.Fatal("it does not come back")
		}
	}
	if d, _ := visit(t, m, int(m.last), 1, cachedTokens(40)); d.Candidates[0].Overlap != 40 {
		t.Errorf("back, and %d blocks", d.Candidates[0].Overlap)
	}
	e := m.Snapshot(m.last + 1).Pools[0].Endpoints[0]
	if !e.Believed || e.Trust != signal.Approximate || e.Compared.Predicted <= e.Compared.Found || e.Compared.Found == 0 {
		t.Errorf("snapshot: %+v", e)
	}
}

// TestTrust_WithoutProof_Stays lists what says nothing about beliefs.
func TestTrust_WithoutProof_Stays(t *testing.T) {
	for name, c := range map[string]struct {
		usage  Usage
		policy selection.Policy
	}{
		"the engine does not tell":         {Usage{Known: true, Prompt: 64*40 + 1}, &overlapping{}},
		"no usage":                         {Usage{}, &overlapping{}},
		"blocks that end elsewhere":        {cachedTokens(32), &overlapping{}},
		"the policy goes by load already":  {cachedTokens(0), lightest{}},
		"more was cached than anyone knew": {cachedTokens(400), &overlapping{}},
	} {
		t.Run(name, func(t *testing.T) {
			m := New(newConfig(newTestPool("p", c.policy, "a"), newTestPool("q", &overlapping{}, "b")))
			for i := range 3 * signal.TrustWindow {
				if _, changes := visit(t, m, 1+i, 1, c.usage); changes != nil {
					t.Fatalf("after %d calls: %+v", i, changes)
				}
			}
			e := m.Snapshot(m.last + 1).Pools[0].Endpoints[0]
			if e.Trust != signal.Approximate || e.Compared.Found > e.Compared.Predicted {
				t.Errorf("%+v", e)
			}
		})
	}
}

// TestTrust_OfShortPrompts has predictions that are no longer than what the two ways of counting
// may differ by: where nothing is found they prove nothing, where all is they bring trust back.
func TestTrust_OfShortPrompts(t *testing.T) {
	m := New(newConfig(newTestPool("p", &overlapping{}, "a")))
	short := func(calls, cached int) signal.Trust {
		for range calls {
			q := ofChain(int(m.last), "short", 8)
			m.serve(t, q, told(q, 64*cached))
		}
		return m.state[0].trust.State()
	}
	if got := short(3*signal.TrustWindow, 0); got != signal.Approximate {
		t.Errorf("where nothing is found trust is %v", got)
	}
	lose(t, m)
	if got := short(3*signal.TrustWindow, 3); got != signal.LoadOnly {
		t.Errorf("where less than half is found trust is %v", got)
	}
	if got := short(2*signal.TrustWindow, 8); got != signal.Approximate {
		t.Errorf("where all is found trust is %v", got)
	}
}

// TestTrust_OfWhatMayBeCountedDifferently_Stays has predictions that are just longer than what
// the two ways of counting may differ by, and of which no more than that is missing.
func TestTrust_OfWhatMayBeCountedDifferently_Stays(t *testing.T) {
	m := New(newConfig(newTestPool("p", &overlapping{}, "a")))
	for i := range 3 * signal.TrustWindow {
		q := request(1 + i)
		q.Blocks, q.BlockTokens, q.InputTokens = ofSession(2, 9), 64, 64*9+1
		a := only(t, m.Step(m.last+10, Arrive(q)))
		m.Step(m.last+1, FirstToken(a.Ticket, 0))
		m.Step(m.last+1, Done(a.Ticket, 0, attempt.Success, Usage{Known: true, CachedKnown: true, Prompt: 64*9 + 1, Cached: 64}))
	}
	e := m.Snapshot(m.last + 1).Pools[0].Endpoints[0]
	if e.Trust != signal.Approximate || 100*e.Compared.Found > signal.TrustLost*e.Compared.Predicted {
		t.Errorf("%v, %+v", e.Trust, e.Compared)
	}
}

// TestTrust_IsHeededByTheQueue holds a call whose prompt a load-only endpoint has computed: it
// counts whole among the prefill that waits.
func TestTrust_IsHeededByTheQueue(t *testing.T) {
	c := newConfig(newTestPool("p", &overlapping{}, "a"))
	c.Pools[0].Queue = admission.Default()
	c.Pools[0].Queue.Tokens = 1
	m := New(c)
	lose(t, m)
	for i := range 2 {
		q := request(int(m.last) + i)
		q.Blocks, q.BlockTokens, q.InputTokens, q.Stream = ofSession(100, 40), 64, 64*40+1, true
		m.Step(m.last+10, Arrive(q))
	}
	q := m.Snapshot(m.last + 1).Pools[0].Queue
	if q == nil || q.Calls != 1 || q.Tokens != 64*40+1 {
		t.Errorf("%+v", q)
	}
}

// TestTrust_EndsWithTheProcess has a new process behind a load-only endpoint, and another
// endpoint in its slot.
func TestTrust_EndsWithTheProcess(t *testing.T) {
	c := newConfig(newTestPool("p", &overlapping{}, "a"))
	m := New(c)
	m.Step(1, Signal(0, 0, signal.Load{Generated: signal.Known(1000, 0)}, 0))
	lose(t, m)
	if m.loadOnly != 1 {
		t.Errorf("%d endpoints are load-only", m.loadOnly)
	}
	m.Step(m.last+1, Signal(0, 0, signal.Load{Generated: signal.Known(1, 0)}, 0))
	m.Step(m.last+1, Wake())
	if m.state[0].trust.State() != signal.Approximate || m.loadOnly != 0 {
		t.Errorf("after a restart: %v, %d", m.state[0].trust.State(), m.loadOnly)
	}
	lose(t, m)
	c.Pools[0].Endpoints[0].Revision++
	m.Reconfigure(m.last+1, c)
	if m.state[0].trust.State() != signal.Approximate || m.loadOnly != 0 {
		t.Errorf("another endpoint: %v, %d", m.state[0].trust.State(), m.loadOnly)
	}
}

// explaining has parts, and forgets them with the pick.
type explaining struct {
	overlapping
	load float64
}

func (e *explaining) Explain(v *selection.View, _ *selection.Request) (all [][]selection.Part) {
	for _, slot := range v.Candidates {
		all = append(all, []selection.Part{{Name: "load_cost", Value: e.load}, {Name: "slot_cost", Value: float64(slot)}})
	}
	return all
}

func (e *explaining) Pick(v *selection.View, _ *selection.Request, _ *seed.Rand) selection.Choice {
	for i, slot := range v.Candidates {
		v.Scores[i] = e.load + float64(slot)
	}
	e.load++
	return selection.Choice{Reason: "explained", Predicted: 7 * time.Millisecond}
}

// TestDecision_HasTheScoresParts_AndWhatIsKnownOfLoad checks that parts are those of the score
// that was gone by, not those of the state that the pick leaves.
func TestDecision_HasTheScoresParts_AndWhatIsKnownOfLoad(t *testing.T) {
	p := &explaining{}
	m := New(newConfig(newTestPool("p", p, "a", "b")))
	m.Step(5, Signal(1, 0, signal.Load{Running: signal.Known(3, 0), KVUsage: signal.Known(0.5, 0)}, 2))
	only(t, m.Step(20, Arrive(request(1))))
	a := only(t, m.Step(30, Arrive(request(2))))
	if a.Predicted != 7*time.Millisecond || a.Decision.Predicted != a.Predicted || a.Decision.Reason != "explained" {
		t.Errorf("predicted %v, decision %+v", a.Predicted, a.Decision)
	}
	for i, k := range a.Decision.Candidates {
		sum := 0.0
		for _, part := range k.Parts {
			sum += part.Value
		}
		if len(k.Parts) != 2 || sum != k.Score {
			t.Errorf("%s: parts %+v of %v", k.Endpoint, k.Parts, k.Score)
		}
		of := map[string]selection.Reading{}
		for _, r := range k.Signals {
			of[r.Name] = r
		}
		if _, known := of["running"]; known != (i == 1) {
			t.Errorf("%s: %+v", k.Endpoint, k.Signals)
		}
		if i == 1 && (of["running"] != selection.Reading{Name: "running", Value: 3, Source: selection.FromReport, Age: 27} || of["kv_usage"].Value != 0.5) {
			t.Errorf("%+v", k.Signals)
		}
		if _, known := of["waiting"]; known {
			t.Errorf("%s: what was not reported is shown", k.Endpoint)
		}
		if i == 0 && (of["pending"] != selection.Reading{Name: "pending", Value: 1, Source: selection.FromDispatches}) {
			t.Errorf("%+v", k.Signals)
		}
	}
}

func chainOf(name string, n int) []kvblock.Hash {
	h := kvblock.Seed(name)
	var b []kvblock.Hash
	for range n {
		h = kvblock.Chain(h, []byte("x"))
		b = append(b, h)
	}
	return b
}

func ofChain(id int, name string, n int) *selection.Request {
	q := request(id)
	q.Blocks, q.BlockTokens = chainOf(name, n), 64
	q.InputTokens = 64*kvblock.Span(n) + 1
	return q
}

func (m *Machine) serve(t *testing.T, q *selection.Request, u Usage) Action {
	t.Helper()
	now := m.last + 10
	a := only(t, m.Step(now, Arrive(q)))
	if a.Kind != Dispatch {
		t.Fatalf("%+v", a)
	}
	m.Step(now+1, FirstToken(a.Ticket, 0))
	m.Step(now+2, Done(a.Ticket, 0, attempt.Success, u))
	m.Step(now+3, Wake())
	return a
}

func told(q *selection.Request, cached int) Usage {
	return Usage{Known: true, CachedKnown: true, Prompt: q.InputTokens, Cached: cached}
}

// A client that has the engine not read its cache (vLLM: prompt_logprobs) makes the router
// forget everybody's prefixes with one call, and stop relying on caches with 32.
func TestTrust_OneUncachedAnswer_TakesNothingFromOthers(t *testing.T) {
	m := New(newConfig(newTestPool("p", &overlapping{}, "a")))
	for v := range 50 { // victims
		q := ofChain(1000+v, string(rune('A'+v)), 40)
		m.serve(t, q, told(q, 0))
	}
	q := ofChain(1, "attacker", 12)
	m.serve(t, q, told(q, 0))
	q = ofChain(2, "attacker", 12) // the same with "prompt_logprobs": 0
	m.serve(t, q, told(q, 0))
	lost := 0
	for v := range 50 {
		d := m.serve(t, ofChain(2000+v, string(rune('A'+v)), 40), Usage{}).Decision
		if d.Candidates[0].Overlap < 40 {
			lost++
		}
	}
	if lost > 0 {
		t.Errorf("after one answer without cached tokens %d of 50 others' prefixes are forgotten", lost)
	}
}

func TestTrust_ATenthOfTheAnswersUncached_IsNotLost(t *testing.T) {
	m := New(newConfig(newTestPool("p", &overlapping{}, "a")))
	victims := 0
	for i := range 120 { // nine of ten calls are others', short, and prove nothing; their caches work
		q := ofChain(100+i, string(rune('a'+i%2)), 12)
		m.serve(t, q, told(q, 0))
		for j := range 9 {
			v := ofChain(1000+100*i+j, "victim", 7)
			m.serve(t, v, told(v, 7*64))
			victims++
		}
	}
	if s := m.state[0].trust.State(); s == signal.LoadOnly {
		t.Errorf("load-only by a tenth of the calls, one client's; %d of others found their prefixes", victims)
	}
}

// truncate_prompt_tokens: an endpoint answers to a huge prompt having computed a token of it.
func TestTrust_APromptThatCannotHaveBeenComputed_IsNotBelieved(t *testing.T) {
	m := New(newConfig(newTestPool("p", &overlapping{}, "a")))
	load := signal.Load{KVBlocks: signal.Known(30_000, 0), BlockTokens: signal.Known(16, 0)} // 480,000 tokens
	m.Step(5, Signal(0, 0, load, 0))
	for v := range 10 {
		q := ofChain(1000+v, string(rune('A'+v)), 40)
		m.serve(t, q, told(q, 0))
	}
	q := ofChain(1, "attacker", 64+1000) // 4 MB of text
	u := told(q, 0)
	u.Prompt = 1 // as the engine says
	m.serve(t, q, u)
	lost := 0
	for v := range 10 {
		if d := m.serve(t, ofChain(2000+v, string(rune('A'+v)), 40), Usage{}).Decision; d.Candidates[0].Overlap < 40 {
			lost++
		}
	}
	if lost > 0 {
		t.Errorf("%d of 10 others' prefixes are forgotten after a prompt of which the engine computed one token", lost)
	}
}

// Calls that the old process's beliefs were attached to count against the new process.
func TestTrust_PredictionsFromBeforeARestart_CountNot(t *testing.T) {
	m := New(newConfig(newTestPool("p", &overlapping{}, "a")))
	load := func(start float64) signal.Load {
		var l signal.Load
		l.Started = signal.Known(start, 0)
		return l
	}
	m.Step(5, Signal(0, 0, load(100), 0))
	q := ofChain(1, "s", 40)
	m.serve(t, q, told(q, 0))
	now := m.last + 10
	var flying []Action
	for i := range signal.TrustWindow {
		flying = append(flying, only(t, m.Step(now+mono.Time(i), Arrive(ofChain(10+i, "s", 40)))))
	}
	// The engine had restarted before these came; a scrape says so only now.
	now += 1000
	m.Step(now, Signal(0, 0, load(200), 0))
	m.Step(now+1, Wake())
	if m.state[0].restarts != 1 {
		t.Fatal("no restart seen")
	}
	for i, a := range flying {
		m.Step(now+10+mono.Time(2*i), FirstToken(a.Ticket, 0))
		q := ofChain(0, "s", 40)
		m.Step(now+11+mono.Time(2*i), Done(a.Ticket, 0, attempt.Success, told(q, 0)))
	}
	m.Step(now+1000, Wake())
	if s := m.state[0].trust.State(); s == signal.LoadOnly {
		t.Errorf("the new process is %v by predictions made of the old one", s)
	}
}
