package emulator

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"kvasir/engine"
)

// Adapter is a LoRA adapter that the engine serves as a model of its name.
type Adapter struct {
	Name string
	Path string // what /v1/models says of where it is; "" means the name
}

func (c *Config) checkAdapters(bad func(field string, value any, allowed string)) {
	for i, a := range c.Adapters {
		same := func(b Adapter) bool { return b.Name == a.Name }
		if a.Name == "" || strings.Contains(a.Name, ",") || slices.Contains(c.Models, a.Name) || slices.ContainsFunc(c.Adapters[:i], same) {
			bad("Adapters", a.Name, "names that are not empty, have no comma, and differ from each other and from Models")
			break
		}
	}
	if n := c.Engine.LoRA.MaxLoRAs; len(c.Adapters) > 0 && n == 0 {
		bad("Engine.LoRA.MaxLoRAs", n, "1 or more where there are Adapters")
	}
}

// mostLoRALabels bounds the label sets of vllm:lora_requests_info that are kept. vLLM keeps
// all that there ever were.
const mostLoRALabels = 64

// loraInfo is what vllm:lora_requests_info says: a series for every set of adapters that was
// in flight after some step, whose value is when that was so last.
type loraInfo struct {
	series []loraSeries
	newest float64 // of their values
	ranks  []loraRank
}

type loraSeries struct {
	adapters string  // names, joined by commas
	at       float64 // Unix time
}

// loraRank is what was seen of a rank.
type loraRank struct {
	steps    int64
	use      []engine.AdapterUse
	adapters string
}

// look notes the adapters that a rank's calls use after its latest step, if there was one.
// vLLM means to count those that run and those that wait, and puts every adapter with a
// call in flight under both labels: it joins the keys of counts that may be zero.
func (l *loraInfo) look(names []Adapter, rank int, e *engine.Engine) {
	if len(names) == 0 {
		return
	}
	for len(l.ranks) <= rank {
		l.ranks = append(l.ranks, loraRank{})
	}
	r := &l.ranks[rank]
	steps := e.Stats().Steps
	if steps == r.steps {
		return
	}
	r.steps = steps
	if use := e.Adapters(); !slices.Equal(r.use, use) {
		r.use = append(r.use[:0], use...)
		used := make([]string, len(use))
		for i, u := range use {
			used[i] = names[u.Adapter-1].Name
		}
		r.adapters = strings.Join(used, ",")
	}
	l.set(r.adapters, time.Now())
}

// set gives a series its time, which is later than that of all others even where a float64
// does not tell them apart; where there are too many, the oldest goes.
func (l *loraInfo) set(adapters string, now time.Time) {
	i := slices.IndexFunc(l.series, func(s loraSeries) bool { return s.adapters == adapters })
	if i < 0 {
		i = len(l.series)
		l.series = append(l.series, loraSeries{adapters: adapters})
	}
	l.newest = max(seconds(now), math.Nextafter(l.newest, math.Inf(1)))
	l.series[i].at = l.newest
	if len(l.series) > mostLoRALabels {
		oldest := slices.MinFunc(l.series, func(a, b loraSeries) int { return cmp.Compare(a.at, b.at) })
		l.series = slices.DeleteFunc(l.series, func(s loraSeries) bool { return s == oldest })
	}
}

// loraRequests writes vllm:lora_requests_info, which an engine without adapters has not, and
// which has no series before the first step.
func (x *exposition) loraRequests(c *Config) {
	if len(c.Adapters) == 0 {
		return
	}
	const name = "vllm:lora_requests_info"
	x.family(name, "gauge", "Running stats on lora requests.")
	for _, s := range x.ranks[0].loras {
		x.name(name).labels([][2]string{
			{"max_lora", strconv.Itoa(c.Engine.LoRA.MaxLoRAs)},
			{"running_lora_adapters", s.adapters}, {"waiting_lora_adapters", s.adapters},
		}).value(s.at)
	}
}
