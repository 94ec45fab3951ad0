package lab

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// amplification is article 9.1: what attempts of several layers come to, by its arithmetic and
// where Kvasir is one of them.
type amplification struct {
	seeding

	sdk      int
	tool     int
	gateway  int
	provider int
	failure  float64
	budget   float64
	load     float64
	waste    float64
	clients  int

	replicas int
	rate     float64
	steady   float64
	seconds  int
}

func amplificationLab() Lab {
	return Lab{
		Name: "retry-amplification", Title: "attempts of several layers multiply", Section: "9.1",
		About: "Each layer makes so many attempts at what is below it until one succeeds, and knows nothing of the others. An upstream attempt fails with a probability, each by itself. The retry budget grants one layer as many " +
			"retries as are the given share of the calls that succeed. Above its capacity a pool fails the rest, and each failure costs a part of what an answer costs; the state is followed from a moment of failure until it no longer changes: all calls at once, no layer waits. " +
			"All that is closed form; the layers' attempts are the article's. The last two tables are Kvasir's own machine in virtual time, as it is by default: one user's call after the other comes to a tool loop and an SDK, which try again as theirs do, and to Kvasir before a pool that fails a share of the attempts, " +
			"then all, then the share again. The provider's SDK tries once: one layer owns retries.",
		Look: []string{
			"In `layers` no layer tries more than four times, and one user action is 144 model calls: 3 · 4 · 4 · 3, not 3 + 4 + 4 + 3 = 14. In `by-failure` they make 144 calls of one where everything fails, a single layer with three attempts 3, and one with a budget of 10 % exactly 1: where nothing succeeds, nothing is granted. At 1 % failures the budget grants all that is wanted.",
			"In `overload` a load of 0.9 of the capacity is served whole until something fails. After a moment of failure four layers hold the pool at 130 times its capacity and nothing is answered any more; one layer of three attempts holds it at 2 times, until the capacity is 3 % more, and with a budget it recovers.",
			"Turn `load` down: one layer lets go at 0.8, four layers still hold the pool down at 0.3. Turn `waste` to 0 and all recover: it is failures that cost work, timeouts above all, that make an overload last.",
			"In `kvasir` a call that reaches Kvasir comes to 1.01 attempts while 1 % of them fail, and to 1.06 while all do: the floor of 10 a second is all that it adds. Without a budget each has three. SDKs that heed x-should-retry send about a third of the calls then; a tool loop knows of no such header.",
			"In `quiet` the floor would pay for every attempt. What comes again is known as such and has one: an SDK's three tries are 3 + 1 + 1 attempts, and would be 9.",
			"In `jitter` all clients that failed together come back together, 1, 3, 7 seconds later. Full jitter leaves 10 %, then 5 % and 2.5 % of them in the worst tenth of a second.",
		},
		Seeded: true, repeats: 5,
		settings: func() experiment {
			return &amplification{sdk: 3, tool: 4, gateway: 4, provider: 3, failure: 0.5, budget: 0.1, load: 0.9, waste: 0.3, clients: 1000,
				replicas: 4, rate: 50, steady: 0.01, seconds: 30}
		},
	}
}

func (x *amplification) params() []Param {
	return []Param{
		count(&x.sdk, "client_sdk", "attempts of the client's SDK", 1, 10),
		count(&x.tool, "tool_loop", "attempts of the agent's tool loop", 1, 10),
		count(&x.gateway, "gateway", "attempts of the gateway", 1, 10),
		count(&x.provider, "provider_sdk", "attempts of the provider's SDK", 1, 10),
		number(&x.failure, "failure", "part of the upstream attempts that fail, a row of the table by failure", 0, 1),
		number(&x.budget, "budget", "retries that a budget grants, as a share of the calls that succeed", 0, 1),
		number(&x.load, "load", "calls of users, in units of what the pool can serve", 0.01, 10),
		number(&x.waste, "waste", "what an attempt that fails costs the pool, in units of one that is answered", 0, 0.99),
		count(&x.clients, "clients", "clients that fail in one instant", 1, 1_000_000),
		count(&x.replicas, "replicas", "replicas behind Kvasir", 1, 16),
		number(&x.rate, "rate", "calls of users a second there", 1, 200),
		number(&x.steady, "steady", "part of the attempts that fail there but in the outage", 0, 0.5),
		count(&x.seconds, "seconds", "how long the outage lasts there, and what is before and after it", 5, 120),
	}
}

// layer is a name and its attempts, from the user down.
type layer struct {
	name     string
	attempts int
}

func (x *amplification) layers() []layer {
	return []layer{{"client SDK", x.sdk}, {"agent's tool loop", x.tool}, {"gateway", x.gateway}, {"provider's SDK", x.provider}}
}

// nested returns how many upstream attempts one call of a user comes to, in the mean, and the
// probability that it fails: a layer with n attempts at what fails with probability q makes
// (1 − qⁿ)/(1 − q) of them, and fails with qⁿ.
func nested(layers []layer, failure float64) (attempts, failed float64) {
	attempts, failed = 1, failure
	for i := len(layers) - 1; i >= 0; i-- {
		mean, power := 0.0, 1.0
		for range layers[i].attempts {
			mean += power
			power *= failed
		}
		attempts, failed = float64(attempts*mean), power
	}
	return attempts, failed
}

// budgeted returns the same for one layer whose retries are at most the given share of the calls
// that succeed. With r retries a call, (1 + r)·(1 − failure) calls succeed, so at most
// b·(1 − failure)/(1 − b·(1 − failure)) are granted.
func budgeted(attempts int, failure, budget float64) (sent float64) {
	wanted, _ := nested([]layer{{"", attempts}}, failure)
	share := float64(budget * (1 - failure))
	if share >= 1 {
		return wanted
	}
	return 1 + min(wanted-1, share/(1-share))
}

// retryWay is a way to place retries: what it makes of a call when attempts fail so often.
type retryWay struct {
	name string
	sent func(failure float64) float64
}

func (x *amplification) ways() []retryWay {
	only := []layer{{"", x.sdk}}
	return []retryWay{
		{"every layer", func(f float64) float64 { sent, _ := nested(x.layers(), f); return sent }},
		{fmt.Sprintf("one layer, %s", counted(x.sdk, "attempt", "attempts")), func(f float64) float64 { sent, _ := nested(only, f); return sent }},
		{fmt.Sprintf("one layer, budget of %s", percentText(x.budget)), func(f float64) float64 { return budgeted(x.sdk, f, x.budget) }},
		{"no retries", func(float64) float64 { return 1 }},
	}
}

// answers returns how many attempts are answered of what is sent, both in units of the capacity. Of s
// answers and f failures, which cost the waste w each, it is s + w·f = 1 above the capacity.
func (x *amplification) answers(sent float64) float64 {
	if sent <= 1 {
		return sent
	}
	return max(0, (1-float64(x.waste*sent))/(1-x.waste))
}

// settle follows a pool from a moment in which every attempt fails: what is sent is the users'
// load times what a call comes to where attempts fail as they now do. It returns what is sent in
// the end, and the part of the attempts that fail.
func (x *amplification) settle(w retryWay) (sent, failure float64) {
	sent = float64(x.load * w.sent(1))
	for range 10_000 {
		failure = 1 - x.answers(sent)/sent
		next := (sent + float64(x.load*w.sent(failure))) / 2
		if math.Abs(next-sent) < 1e-12 {
			break
		}
		sent = next
	}
	return sent, failure
}

// mostTuning is as far as tuned looks, in times the capacity.
const mostTuning = 10

// tuned returns how many times the capacity a pool must have, to a hundredth, for what is sent to
// come down to the users' calls by itself; +Inf: more than mostTuning.
func (x *amplification) tuned(w retryWay) float64 {
	for percent := 100; percent <= 100*mostTuning; percent++ {
		y := *x
		y.load = x.load / (float64(percent) / 100)
		if sent, _ := y.settle(w); sent <= y.load+1e-6 {
			return float64(percent) / 100
		}
	}
	return math.Inf(1)
}

func (x *amplification) run(seeds int) Findings {
	layers := x.layers()
	table := Table{Name: "layers", Title: "what reaches upstream when everything fails", Columns: []Column{{Name: "layer"}, {Name: "attempts"}, {Name: "retries"}, {Name: "calls so far"}}}
	product, sum := 1, 0
	var cumulated []int
	for _, l := range layers {
		product, sum = product*l.attempts, sum+l.attempts
		cumulated = append(cumulated, product)
		table.Rows = append(table.Rows, []Cell{Text(l.name), Number(float64(l.attempts), 0), Number(float64(l.attempts-1), 0), Number(float64(product), 0)})
	}

	ways := x.ways()
	failures := Table{Name: "by-failure", Title: "upstream attempts for one call of a user, in the mean", Columns: []Column{{Name: "attempts that fail", Unit: "%"}}}
	for _, w := range ways {
		failures.Columns = append(failures.Columns, Column{Name: w.name})
	}
	rates := []float64{0, 0.01, 0.1, x.failure, 0.9, 1}
	slices.Sort(rates)
	for _, f := range slices.Compact(rates) {
		row := []Cell{Number(100*f, 0)}
		for _, w := range ways {
			row = append(row, Number(w.sent(f), 2))
		}
		failures.Rows = append(failures.Rows, row)
	}

	overload := Table{Name: "overload", Title: fmt.Sprintf("a pool at %s of its capacity, after a moment in which everything failed", percentText(x.load)),
		Columns: []Column{{Name: "retries"}, {Name: "sent, in capacities"}, {Name: "attempts that fail", Unit: "%"}, {Name: "users' calls answered", Unit: "%"}}}
	var settled []float64
	for _, w := range ways {
		sent, failure := x.settle(w)
		settled = append(settled, sent)
		answered := min(float64(sent*(1-failure))/x.load, 1)
		overload.Rows = append(overload.Rows, []Cell{Text(w.name), Number(sent, 2), Number(100*failure, 0), Number(100*answered, 0)})
	}
	all := x.layered(x.layerings(), x.rate, seeds)
	few := x.layered(x.quietLayerings(), quiet, seeds)
	return Findings{
		Tables:   []Table{table, failures, overload, x.jitter(), x.kvasirTable(all), x.quietTable(few)},
		Plots:    []Plot{x.plotLayers(cumulated), x.plotFailures(ways), x.kvasirPlot(all)},
		Verdicts: append(x.verdicts(ways, cumulated, sum, settled[1]), x.kvasirVerdicts(all, few, seeds)...),
	}
}

// jitterWindow is the time in which clients that come back are counted, in seconds.
const jitterWindow = 0.1

// backoff returns how long clients wait before retry n, from 1, in seconds: 1, 2, 4 …
func backoff(n int) float64 { return float64(int(1) << (n - 1)) }

// worst returns which part of the clients comes back within the window at most, at retry n. Without
// jitter that is all of them. With full jitter a wait is as likely anywhere up to its backoff, and
// all earlier ones together are less than that, so the sum is at most as dense as the last wait.
func worst(n int, jitter bool) float64 {
	if !jitter {
		return 1
	}
	return jitterWindow / backoff(n)
}

// jitter says how many clients come back at once.
func (x *amplification) jitter() Table {
	t := Table{Name: "jitter", Title: fmt.Sprintf("%s clients that failed in one instant: the most that come back within %s s", decimal(float64(x.clients), 0), show(jitterWindow)),
		Columns: []Column{{Name: "retry"}, {Name: "backoff", Unit: "s"}, {Name: "comes without jitter after", Unit: "s"}, {Name: "without jitter"}, {Name: "full jitter"}}}
	at := 0.0
	for n := 1; n <= jitterRetries; n++ {
		at += backoff(n)
		t.Rows = append(t.Rows, []Cell{Number(float64(n), 0), Number(backoff(n), 0), Number(at, 0), Number(float64(x.clients)*worst(n, false), 0), Number(float64(x.clients)*worst(n, true), 0)})
	}
	return t
}

// jitterRetries are the rows of the table of jitter.
const jitterRetries = 3

// verdicts judges the article's claims; held is what one layer without a budget ends at.
func (x *amplification) verdicts(ways []retryWay, cumulated []int, sum int, held float64) []Verdict {
	whole := func(article, ours int) figure { return figure{float64(article), float64(ours), 0, ""} }
	twice, _ := nested([]layer{{"", 4}, {"", 4}}, 1)
	budget := ways[2].sent
	wanted := ways[1].sent
	enough := x.tuned(ways[1])
	return []Verdict{
		equals("9.1", "four layers that try 3, 4, 4 and 3 times are 144 calls, not 14", whole(144, cumulated[3]), whole(14, sum)),
		equals("9.1", "behind each layer: 3, 12, 48, 144", whole(3, cumulated[0]), whole(12, cumulated[1]), whole(48, cumulated[2]), whole(144, cumulated[3])),
		equals("9.1", "every layer retried two or three times only", whole(2, x.sdk-1), whole(3, x.tool-1), whole(3, x.gateway-1), whole(2, x.provider-1)),
		equals("9.1", "N retries that two layers apply are (1 + N)² calls (N = 3)", figure{16, twice, 0, ""}),
		holds("9.1", "a budget of 10 % allows what is wanted in steady state", budget(0.01) == wanted(0.01),
			fmt.Sprintf("at 1 %% failures it grants all of %s retries a call", decimal(wanted(0.01)-1, 3))),
		holds("9.1", "a budget does not amplify in an incident", budget(1) == 1 && wanted(1) == 3,
			fmt.Sprintf("%s calls of one where everything fails, against %s without", decimal(budget(1), 2), decimal(wanted(1), 0))),
		holds("3", "no tuning of the engine reduces the load if the client retries without a budget", math.IsInf(enough, 1),
			fmt.Sprintf("one layer without a budget keeps a pool loaded to %s at %s times its capacity; at %s times the capacity it lets go", percentText(x.load), decimal(held, 2), decimal(enough, 2))).
			because("What an overload fails is retried, and up to there no tuning is enough. An engine that serves that much more fails nothing, and then nothing is retried. The margin is what retries take: with a budget the pool recovers as it is."),
		holds("9.1", "a budget lets a pool recover that retries without one keep down", held > 1 && x.tuned(ways[2]) == 1,
			fmt.Sprintf("at the capacity that it has, where without one it takes %s times that", decimal(enough, 2))),
		holds("9.1", "without jitter retries synchronize and rebuild the spike", worst(jitterRetries, false) == 1 && worst(1, true) <= 0.1,
			fmt.Sprintf("%s of the clients come back together each time; with full jitter %s, then %s and %s %% in the worst %s s", percentText(worst(1, false)),
				percentText(worst(1, true)), percentText(worst(2, true)), show(float64(100*worst(3, true))), show(jitterWindow))),
	}
}

// plotLayers draws what reaches each layer.
func (x *amplification) plotLayers(cumulated []int) Plot {
	p := Plot{Name: "layers", Title: "calls behind each layer when everything fails", Kind: Bars, Y: Axis{Label: "calls"}, Series: []Series{{Name: "multiplied"}, {Name: "as if they added"}}}
	sum := 0
	var texts []string
	for i, l := range x.layers() {
		sum += l.attempts
		p.X.Names = append(p.X.Names, l.name)
		for n, y := range []int{cumulated[i], sum} {
			p.Series[n].X, p.Series[n].Y = append(p.Series[n].X, float64(i)), append(p.Series[n].Y, float64(y))
		}
		texts = append(texts, fmt.Sprint(cumulated[i]))
	}
	p.Says = fmt.Sprintf("Behind the layers there are %s calls; were attempts to add, they would be %d in the end.", strings.Join(texts, ", "), sum)
	return p
}

// plotFailures draws what a call comes to by how often attempts fail.
func (x *amplification) plotFailures(ways []retryWay) Plot {
	p := Plot{Name: "failures", Title: "upstream attempts for one call of a user", Kind: Lines, X: Axis{Label: "attempts that fail", Unit: "%"}, Y: Axis{Label: "attempts", Log: true},
		Marks: []Mark{{"x", 100 * x.failure, "failure"}}}
	for _, w := range ways {
		s := Series{Name: w.name}
		for percent := 0; percent <= 100; percent += 2 {
			s.X, s.Y = append(s.X, float64(percent)), append(s.Y, w.sent(float64(percent)/100))
		}
		p.Series = append(p.Series, s)
	}
	p.Says = fmt.Sprintf("Where every attempt fails, every layer retrying makes %s calls of one, one layer %s, one layer with a budget %s.", decimal(ways[0].sent(1), 0), decimal(ways[1].sent(1), 0), decimal(ways[2].sent(1), 0))
	return p
}
