package sim

import (
	"slices"
	"testing"
	"time"

	"kvasir/client/workload"
	"kvasir/engine"
	"kvasir/internal/kvblock"
	"kvasir/internal/mono"
	"kvasir/selection/signal"
)

// A call's adapter reaches the router and the engine, and what is told of its prompt is
// another adapter's no more.
func TestSessions_AskForAdapters(t *testing.T) {
	blocks := []kvblock.Hash{1, 2, 3, 4}
	session := func(adapter string) workload.Session {
		return workload.Session{ID: "one", Calls: []workload.Call{{Adapter: adapter, PromptTokens: 300, OutputTokens: 1, Blocks: blocks}}}
	}
	var calls []Call
	for _, adapter := range []string{"", "sql", "chat", "sql"} {
		feed, err := NewSessions(SessionsConfig{Source: source(nil, session(adapter)), Routers: 1, Rate: 1, EngineBlockTokens: 64})
		if err != nil {
			t.Fatal(err)
		}
		var c Call
		if !feed.Next(&c) {
			t.Fatal("there is no call")
		}
		want := kvblock.Hash(0)
		if adapter != "" {
			want = signal.Adapter(adapter)
		}
		if c.Request.Adapter != want || c.Prompt.Adapter != want {
			t.Errorf("%q: adapters %x and %x, want %x", adapter, c.Request.Adapter, c.Prompt.Adapter, want)
		}
		calls = append(calls, c)
	}
	for i, a := range calls {
		for j, b := range calls {
			same := i == j || i+j == 4 && i != j && i != 2
			if slices.Equal(a.Request.Blocks, b.Request.Blocks) != same || slices.Equal(a.Prompt.Blocks, b.Prompt.Blocks) != same ||
				(a.Request.Head == b.Request.Head) != same {
				t.Errorf("calls %d and %d share blocks or a head: want %v", i, j, same)
			}
		}
	}
}

// A scrape tells the adapters in flight, and the slots; nothing of an engine without slots.
func TestReplica_TellsItsAdapters(t *testing.T) {
	s := testScenario(t, "least-outstanding", 1)
	load := func(l engine.LoRA, adapters ...kvblock.Hash) signal.Load {
		c := s.Engines[0].Config
		c.LoRA = l
		e, err := engine.New(c)
		if err != nil {
			t.Fatal(err)
		}
		for i, a := range adapters {
			if err := e.Submit(0, engine.Request{ID: engine.ID(i), Adapter: a, PromptTokens: 10, OutputTokens: 1000}); err != nil {
				t.Fatal(err)
			}
		}
		p := &replica{world: &world{result: Result{Waited: make([]int, 1)}}, cfg: &Engine{Config: c}, eng: e, guests: map[engine.ID]*visit{}}
		now := mono.Time(100 * time.Millisecond)
		got, ok := p.load(now)
		if !ok || got.Adapters.Known() && got.Adapters.At != now {
			t.Fatalf("%+v, %v", got, ok)
		}
		return got
	}
	if a := load(engine.LoRA{}).Adapters; a.Known() {
		t.Errorf("an engine without slots tells %+v", a)
	}
	a := load(engine.LoRA{MaxLoRAs: 1, MaxCPULoRAs: 2}, 9, 4, 0, 9).Adapters
	want := []kvblock.Hash{4, 9}
	if a.Slots() != 1 || !slices.Equal(a.Running().Named(), want) || !slices.Equal(a.Waiting().Named(), want) {
		t.Errorf("%d slots, running %v, waiting %v; want 1 and %v twice", a.Slots(), a.Running().Named(), a.Waiting().Named(), want)
	}
}

// Of sixteen adapters four have a slot at an engine: who sends each where it is loads less,
// and answers sooner, than who goes by load alone.
func TestScenario_AffinityToAdaptersPays(t *testing.T) {
	run := func(rule string) *Summary {
		s := testScenario(t, rule, 8)
		s.Workload.Source = workload.Adapters{N: 16, Exponent: 1, Share: 1}.Apply(conversations(600), 1)
		s.Workload.Rate = 6
		for i := range s.Engines {
			s.Engines[i].Config.LoRA = engine.LoRA{MaxLoRAs: 4, MaxCPULoRAs: 4, LoadFromHost: 10 * time.Millisecond, LoadFromDisk: 500 * time.Millisecond}
		}
		got, err := s.Run()
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	by, without := run("lora-affinity"), run("least-outstanding")
	t.Logf("TTFT P95 %v s with affinity, %v s without", by.TTFT.P95, without.TTFT.P95)
	if by.TTFT.P95 > without.TTFT.P95/2 {
		t.Errorf("TTFT P95 is %v s with affinity and %v s without; want half at most", by.TTFT.P95, without.TTFT.P95)
	}
}
