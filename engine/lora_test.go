package engine

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"kvasir/internal/kvblock"
	"kvasir/internal/mono"
)

// with gives the request an adapter.
func (q Request) with(a kvblock.Hash) Request {
	q.Adapter = a
	return q
}

// slots is an engine of so many slots and places at the host; a load from there takes 3 ms,
// and 20 ms more from the disk.
func slots(device, host int) Config {
	c := small()
	c.LoRA = LoRA{MaxLoRAs: device, MaxCPULoRAs: host, LoadFromHost: 3 * time.Millisecond, LoadFromDisk: 20 * time.Millisecond}
	return c
}

// Each request runs alone: what its one step takes beyond the base model's tells where its
// adapter was.
func TestLoRA_LoadsWhatIsNotInASlot(t *testing.T) {
	const disk, host, slot = 23_000 * microsecond, 3000 * microsecond, 0
	for _, c := range []struct {
		name         string
		device, host int
		adapters     []kvblock.Hash
		want         []mono.Time
	}{
		{"the base model needs none", 1, 1, []kvblock.Hash{0, 0}, []mono.Time{0, 0}},
		{"once", 1, 1, []kvblock.Hash{1, 1, 0, 1}, []mono.Time{disk, slot, 0, slot}},
		{"a slot gives way to another, and the host as well", 1, 1, []kvblock.Hash{1, 2, 1}, []mono.Time{disk, disk, disk}},
		{"the host keeps what left a slot", 1, 2, []kvblock.Hash{1, 2, 1}, []mono.Time{disk, disk, host}},
		{"the longest idle gives way", 2, 3, []kvblock.Hash{1, 2, 1, 3, 1, 2}, []mono.Time{disk, disk, slot, disk, slot, host}},
		{"at the host too", 1, 2, []kvblock.Hash{1, 2, 1, 3, 1, 2}, []mono.Time{disk, disk, host, disk, host, disk}},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := mustNew(t, slots(c.device, c.host))
			for i, a := range c.adapters {
				at := second * mono.Time(i)
				e.Advance(at)
				mustSubmit(t, e, at, plain(ID(i), 1, 1).with(a))
				out := drain(e)[0]
				if got := out.At - out.Scheduled - 1000*microsecond; got != c.want[i] {
					t.Errorf("request %d, adapter %d: loading took %d µs, want %d", i, a, got/microsecond, c.want[i]/microsecond)
				}
				audit(t, e)
			}
		})
	}
}

// Loads of one step add up, and the whole batch waits for them.
func TestLoRA_TheBatchWaitsForEveryLoad(t *testing.T) {
	e := mustNew(t, slots(2, 2))
	mustSubmit(t, e, 0, plain('a', 1, 9))
	step(t, e)
	step(t, e) // a has its first token
	mustSubmit(t, e, e.advanced, plain('b', 1, 1).with(1))
	mustSubmit(t, e, e.advanced, plain('c', 1, 1).with(2))
	step(t, e)
	before := e.advanced
	if out := step(t, e); len(out) != 3 || out[2].At-before != (1002+46_000)*microsecond {
		t.Errorf("%+v after %d", out, before)
	}
}

// A request without a slot is passed over by those of other adapters and of the base model,
// and is the next once a slot is idle, before those of its adapter that came later.
func TestLoRA_WhoLacksASlotIsPassedOverAndNext(t *testing.T) {
	c := slots(1, 1)
	c.LoRA.LoadFromHost, c.LoRA.LoadFromDisk = 0, 0
	e := mustNew(t, c)
	for i, q := range []Request{
		plain('a', 1, 4).with(1), plain('b', 1, 1).with(2), plain('c', 1, 1), plain('d', 1, 6).with(1), plain('e', 1, 1).with(2), plain('f', 1, 1).with(1),
	} {
		mustSubmit(t, e, mono.Time(i), q)
	}
	var ends []ID
	for _, o := range drain(e) {
		if o.Finished {
			ends = append(ends, o.ID)
		}
	}
	if want := []ID{'c', 'f', 'a', 'd', 'b', 'e'}; !slices.Equal(ends, want) {
		t.Errorf("ended in the order %c, want %c", ends, want)
	}
}

func TestLoRA_TellsWhichAdaptersAreInUse(t *testing.T) {
	e := mustNew(t, slots(1, 1))
	use := func(want ...AdapterUse) {
		t.Helper()
		if got := e.Adapters(); !slices.Equal(got, want) {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	use()
	mustSubmit(t, e, 0, plain('a', 1, 2).with(7))
	mustSubmit(t, e, 0, plain('b', 1, 1).with(5))
	mustSubmit(t, e, 0, plain('c', 1, 1))
	mustSubmit(t, e, 0, plain('d', 1, 9).with(7))
	step(t, e)
	step(t, e)
	use(AdapterUse{7, 2, 0}, AdapterUse{5, 0, 1})
	step(t, e)
	use(AdapterUse{7, 1, 0}, AdapterUse{5, 0, 1})
	e.Abort(e.advanced, 'd')
	step(t, e)
	use(AdapterUse{7, 1, 0}, AdapterUse{5, 0, 1}) // of the last step that ended
	step(t, e)
	use()
}

func TestLoRA_RefusesWhatCannotBe(t *testing.T) {
	for _, c := range []struct {
		lora  LoRA
		words string
	}{
		{LoRA{MaxCPULoRAs: 1}, "LoRA.MaxLoRAs is 0; allowed: 1 or more"},
		{LoRA{LoadFromHost: 1}, "LoRA.MaxLoRAs is 0"},
		{LoRA{MaxLoRAs: -1}, "LoRA.MaxLoRAs is -1; allowed: 0 to 4096"},
		{LoRA{MaxLoRAs: 4097, MaxCPULoRAs: 4097}, "LoRA.MaxLoRAs is 4097"},
		{LoRA{MaxLoRAs: 2, MaxCPULoRAs: 1}, "LoRA.MaxCPULoRAs is 1; allowed: MaxLoRAs, 2, to 4096"},
		{LoRA{MaxLoRAs: 2, MaxCPULoRAs: 5000}, "LoRA.MaxCPULoRAs is 5000"},
		{LoRA{MaxLoRAs: 2, MaxCPULoRAs: 2, LoadFromHost: -1}, "LoRA.LoadFromHost is -1ns"},
		{LoRA{MaxLoRAs: 2, MaxCPULoRAs: 2, LoadFromDisk: time.Hour}, "LoRA.LoadFromDisk is 1h0m0s; allowed: 0 to 10m0s"},
	} {
		cfg := small()
		cfg.LoRA = c.lora
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%+v: %v, want %q", c.lora, err, c.words)
		}
	}
	e := mustNew(t, small())
	err := e.Submit(0, plain('a', 1, 1).with(3))
	if !errors.Is(err, ErrField) || !strings.Contains(err.Error(), "Adapter is 3; allowed: 0") {
		t.Errorf("an engine without slots took a request of adapter 3: %v", err)
	}
}

// Requests of one adapter, or of the base model, are first scheduled in the order in which
// they came, whoever was passed over.
func TestLaw_NobodyIsPassedByItsOwnAdapter(t *testing.T) {
	forStreams(t, func(t testing.TB, _ *rapid.T, s stream) {
		outputs, _ := s.run(t, nil)
		type first struct {
			at, queued mono.Time
			id         ID
		}
		latest := map[kvblock.Hash]first{}
		adapter := map[ID]kvblock.Hash{}
		for _, o := range s.orders {
			if !o.abort {
				adapter[o.req.ID] = o.req.Adapter
			}
		}
		var firsts []Output
		for _, o := range outputs {
			if o.First {
				firsts = append(firsts, o)
			}
		}
		slices.SortStableFunc(firsts, func(a, b Output) int { return int(a.Scheduled - b.Scheduled) })
		for _, o := range firsts {
			a := adapter[o.ID]
			if before, ok := latest[a]; ok && before.at < o.Scheduled && before.queued > o.Queued {
				t.Fatalf("adapter %d: %d, queued at %d, was scheduled before %d, queued at %d", a, before.id, before.queued, o.ID, o.Queued)
			}
			latest[a] = first{o.Scheduled, o.Queued, o.ID}
		}
	})
}

// A step in which a thousand requests wait for a slot.
func BenchmarkStep_NoSlot(b *testing.B) {
	c := h100(b)
	c.MaxModelLen, c.NumBlocks = 1<<30, 1<<20
	c.LoRA = LoRA{MaxLoRAs: 1, MaxCPULoRAs: 8}
	setup := func() *Engine {
		e := mustNew(b, c)
		mustSubmit(b, e, 0, plain(runs, 1000, 1<<20).with(1))
		for i := range 1000 {
			mustSubmit(b, e, 1, plain(ID(2000+i), 100, 1).with(kvblock.Hash(2+i%6)))
		}
		for e.waiting.n == 0 {
			step(b, e)
		}
		return e
	}
	e := setup()
	b.ReportAllocs()
	for b.Loop() {
		if e.running.n > 1 {
			b.StopTimer()
			e = setup()
			b.StartTimer()
		}
		step(b, e)
	}
}
