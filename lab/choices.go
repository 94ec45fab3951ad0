package lab

import (
	"fmt"
	"math"

	"kvasir/internal/kvblock"
	"kvasir/internal/portable"
	"kvasir/internal/seed"
	"kvasir/selection"
	"kvasir/selection/policy"
)

// choices is the arithmetic of article 4.1: what the classical rules balance, without an engine.
type choices struct {
	seeding

	bins     int
	rho      float64
	queues   int
	events   int
	replicas int
	cs2      float64
	keys     int
	skew     float64
	factor   float64
}

func choicesLab() Lab {
	return Lab{
		Name: "choices", Title: "balls, bins and rings: what the classical rules balance", Section: "4.1",
		About: "As many balls as bins, each into the least loaded of d bins that are drawn; ties go to the first drawn. The same rule on queues with Poisson arrivals and exponential service, " +
			"beside the mean time in the system with infinitely many of them, Σ ρ^((dⁱ−d)/(d−1)) services (Mitzenmacher 1996). Round robin deals requests whose work varies. Keys whose popularity falls as 1/rank^skew go " +
			"round the catalogue's ring, with and without a bound. The article gives orders of growth; sizes are ours.",
		Look: []string{
			"In `balls` one random bin of 100,000 ends with 7.8 balls at most; the better of two with 3.5, of three with 3.0. From 100 bins to 100,000 the first grows by 3.5, the second by 1.0.",
			"In `queues` at ρ = 0.9 a call is there for 10 services under one choice, 2.6 under two, 2.1 under three and 1.5 under eight. At a `utilization` of 0.99 it is 100, 5.4, 3.9 and 2.4; the drawn runs need more `events` to come there.",
			"In `round-robin` four replicas that were dealt 8 requests differ by 1.4 times their mean work, after 4,000 by 6 % of it. Turn `cs2` down to 1 to halve that.",
			"In `ring` popular keys give one replica 1.7 times its share. A `load_factor` of 1.25 caps that and leaves 89 % of the requests at home. Turn `skew` to 2: 2.9 times, and 56 % under the same cap.",
		},
		Seeded: true,
		settings: func() experiment {
			return &choices{bins: 100_000, rho: 0.9, queues: 100, events: 200_000, replicas: 4, cs2: 4, keys: 100, skew: 1, factor: 1.25}
		},
	}
}

func (x *choices) params() []Param {
	return []Param{
		count(&x.bins, "bins", "bins of the largest throw; smaller ones are shown as well", 10, 1_000_000),
		number(&x.rho, "utilization", "of the queues", 0.01, 0.99),
		count(&x.queues, "queues", "queues that calls choose among", 8, 10_000),
		count(&x.events, "events", "arrivals and services of a run on the queues, the first half of which is not counted", 1000, 5_000_000),
		count(&x.replicas, "replicas", "replicas that round robin deals to, and that are on the ring", 2, 64),
		number(&x.cs2, "cs2", "squared coefficient of variation of the work that round robin deals", 1, 100),
		count(&x.keys, "keys", "keys that are hashed", 1, 10_000),
		number(&x.skew, "skew", "exponent of the keys' popularity by rank; 0: all alike", 0, 4),
		number(&x.factor, "load_factor", "c of the bounded ring: the most that a replica holds, in equal shares", 1.01, 10),
	}
}

// drawn are the numbers of choices compared.
var drawnChoices = []int{1, 2, 3, 4, 8}

// ballRow is a row of the table of balls: the greatest load by number of choices, over seeds.
type ballRow struct {
	bins int
	most [5][]float64 // by position in drawnChoices
}

// throw puts n balls into n bins, each into the least loaded of d drawn ones, and returns the
// greatest load.
func throw(n, d int, r *seed.Rand, loads []int32) float64 {
	clear(loads[:n])
	most := int32(0)
	for range n {
		best := r.Intn(n)
		for range d - 1 {
			if i := r.Intn(n); loads[i] < loads[best] {
				best = i
			}
		}
		loads[best]++
		most = max(most, loads[best])
	}
	return float64(most)
}

// balls throws for every number of bins up to the setting.
func (x *choices) balls(seeds int) []ballRow {
	var sizes []int
	for n := 100; n < x.bins; n *= 10 {
		sizes = append(sizes, n)
	}
	loads := make([]int32, x.bins)
	var rows []ballRow
	for _, n := range append(sizes, x.bins) {
		row := ballRow{bins: n}
		for i, d := range drawnChoices {
			for s := range seeds {
				r := seed.New(x.root(s), seed.Workload, uint64(n), uint64(d))
				row.most[i] = append(row.most[i], throw(n, d, &r, loads))
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// one is ln n/ln ln n, by which the greatest load grows with one choice.
func oneGrowth(n int) float64 {
	ln := portable.Ln(float64(n))
	return ln / portable.Ln(ln)
}

// growth is ln ln n/ln d, by which it grows with d choices, d ≥ 2.
func growth(n, d int) float64 {
	return portable.Ln(portable.Ln(float64(n))) / portable.Ln(float64(d))
}

func ballTable(rows []ballRow) (Table, Plot) {
	t := Table{Name: "balls", Title: "the greatest load, n balls in n bins", Columns: []Column{{Name: "n"}}}
	p := Plot{Name: "balls", Title: t.Title, Kind: Lines, X: Axis{Label: "bins", Log: true}, Y: Axis{Label: "balls in the fullest bin"}}
	var x Numbers
	for _, row := range rows {
		cells := []Cell{Number(float64(row.bins), 0)}
		for i := range drawnChoices {
			cells = append(cells, Mean(row.most[i], 2))
		}
		t.Rows = append(t.Rows, append(cells, Number(oneGrowth(row.bins), 2), Number(growth(row.bins, 2), 2)))
		x = append(x, float64(row.bins))
	}
	for i, d := range drawnChoices {
		name := counted(d, "choice", "choices")
		t.Columns = append(t.Columns, Column{Name: name})
		var runs [][]float64
		for _, row := range rows {
			runs = append(runs, row.most[i])
		}
		p.Series = append(p.Series, meansAt(name, x, runs))
	}
	t.Columns = append(t.Columns, Column{Name: "ln n/ln ln n"}, Column{Name: "ln ln n/ln 2"})
	last := rows[len(rows)-1]
	p.Says = fmt.Sprintf("Of %s bins the fullest has %s balls with one choice, %s with two and %s with eight.", decimal(float64(last.bins), 0),
		decimal(average(last.most[0]), 1), decimal(average(last.most[1]), 1), decimal(average(last.most[4]), 1))
	return t, p
}

// stay returns the mean time in the system, in services, on queues that calls choose among d at a
// time. Arrivals and services are drawn as one chain of events: an arrival with probability
// ρ/(1+ρ), otherwise a service at a queue that is drawn, which is nothing where it is empty.
func (x *choices) stay(d int, root uint64) float64 {
	r := seed.New(root, seed.Workload, 0, uint64(d))
	queues := make([]int32, x.queues)
	arrival := x.rho / (1 + x.rho)
	inside, area := 0, 0.0
	for n := range x.events {
		if n%askEvery == askEvery-1 {
			x.ask()
		}
		i := r.Intn(x.queues)
		if r.Float64() < arrival {
			for range d - 1 {
				if j := r.Intn(x.queues); queues[j] < queues[i] {
					i = j
				}
			}
			queues[i]++
			inside++
		} else if queues[i] > 0 {
			queues[i]--
			inside--
		}
		if n >= x.events/2 {
			area += float64(inside)
		}
	}
	mean := area / float64(x.events-x.events/2)
	return mean / (x.rho * float64(x.queues)) // Little's law
}

// manyQueues returns the mean time in the system with infinitely many queues, in services.
func manyQueues(rho float64, d int) float64 {
	if d == 1 {
		return 1 / (1 - rho)
	}
	sum, term := 0.0, 1.0
	for exponent := 0.0; term > 1e-12; exponent = float64(float64(d)*exponent) + float64(d) {
		term = portable.Pow(rho, exponent)
		sum += term
	}
	return sum
}

func (x *choices) queueTable(seeds int) (Table, Plot, [][]float64) {
	t := Table{Name: "queues", Title: fmt.Sprintf("mean time in the system on %s queues at ρ = %s, in services", decimal(float64(x.queues), 0), show(x.rho)),
		Columns: []Column{{Name: "choices"}, {Name: "drawn"}, {Name: "infinitely many queues"}, {Name: "of the gain from 1 to 8", Unit: "%"}}}
	p := Plot{Name: "queues", Title: "mean time in the system by number of choices", Kind: Bars, X: Axis{Label: "choices"}, Y: Axis{Label: "time", Unit: "services"}}
	var runs [][]float64
	whole := manyQueues(x.rho, 1) - manyQueues(x.rho, 8)
	exact := Series{Name: "infinitely many queues", X: places(len(drawnChoices))}
	for _, d := range drawnChoices {
		var stays []float64
		for s := range seeds {
			stays = append(stays, x.stay(d, x.root(s)))
		}
		runs = append(runs, stays)
		t.Rows = append(t.Rows, []Cell{Number(float64(d), 0), Mean(stays, 2), Number(manyQueues(x.rho, d), 2), Number(100*(manyQueues(x.rho, 1)-manyQueues(x.rho, d))/whole, 0)})
		p.X.Names = append(p.X.Names, fmt.Sprint(d))
		exact.Y = append(exact.Y, manyQueues(x.rho, d))
	}
	p.Series = []Series{bars("drawn", runs...), exact}
	p.Says = fmt.Sprintf("A call is there for %s services with one choice, %s with two, %s with eight.", decimal(average(runs[0]), 1), decimal(average(runs[1]), 1), decimal(average(runs[4]), 1))
	return t, p, runs
}

// dealt are the rows of the table of round robin: requests dealt.
var dealt = []int{8, 40, 400, 4000}

// dealTimes is how often a seed deals.
const dealTimes = 20

// deal gives requests whose work has mean 1 to replicas in turn, and returns the standard
// deviation of a replica's work about its mean, in that mean. Work is hyperexponential: two
// exponential kinds that have half of all work each.
func (x *choices) deal(n int, root uint64) float64 {
	r := seed.New(root, seed.Workload, 1, uint64(n))
	often := (1 + math.Sqrt((x.cs2-1)/(x.cs2+1))) / 2
	squares := 0.0
	each := n / x.replicas
	for range dealTimes * x.replicas {
		work := 0.0
		for range each {
			p := often
			if r.Float64() >= often {
				p = 1 - often
			}
			work += exponential(&r) / (2 * p)
		}
		off := work/float64(each) - 1
		squares += float64(off*off) / float64(dealTimes*x.replicas)
	}
	return math.Sqrt(squares)
}

func (x *choices) dealTable(seeds int) (Table, [][]float64, []float64) {
	t := Table{Name: "round-robin", Title: fmt.Sprintf("round robin over %d replicas, work with C_s² = %s: spread of a replica's work about its mean", x.replicas, show(x.cs2)),
		Columns: []Column{{Name: "requests n"}, {Name: "drawn"}, {Name: "C_s/√(n/k)"}}}
	var runs [][]float64
	var want []float64
	for _, n := range dealt {
		n = max(n, x.replicas) / x.replicas * x.replicas
		var spreads []float64
		for s := range seeds {
			spreads = append(spreads, x.deal(n, x.root(s)))
		}
		formula := math.Sqrt(x.cs2 / (float64(n) / float64(x.replicas)))
		runs, want = append(runs, spreads), append(want, formula)
		t.Rows = append(t.Rows, []Cell{Number(float64(n), 0), Mean(spreads, 3), Number(formula, 3)})
	}
	return t, runs, want
}

// ringRequests is how many requests go round the ring: enough that a share is some hundreds.
const ringRequests = 2000

// unbounded is a load factor that is never reached.
const unbounded = 1e9

// ringRun is what became of requests on the ring.
type ringRun struct {
	most float64 // the greatest load, in equal shares
	cap  bool    // no replica is above ⌈c·m/n⌉
	home float64 // per cent that stayed where their key lives
}

// hash sends requests round the ring. What is drawn is the same for every factor.
func (x *choices) hash(root uint64, skew, factor float64) ringRun {
	r := seed.New(root, seed.Workload, 2, 0)
	bounded := newRouter(&policy.ConsistentHash{Key: "conversation", Blocks: 1, LoadFactor: factor}, x.replicas, root, 0)
	home := newRouter(&policy.ConsistentHash{Key: "conversation", Blocks: 1, LoadFactor: unbounded}, x.replicas, root, 0)
	cumulated := make([]float64, x.keys)
	sum := 0.0
	for rank := range cumulated {
		sum += portable.Pow(float64(rank+1), -skew)
		cumulated[rank] = sum
	}
	keys := make([]kvblock.Hash, x.keys)
	for rank := range keys {
		keys[rank] = kvblock.Seed("key", fmt.Sprint(root), fmt.Sprint(rank))
	}
	var run ringRun
	for range ringRequests {
		at, rank := r.Float64()*sum, 0
		for rank < x.keys-1 && cumulated[rank] <= at {
			rank++
		}
		q := &selection.Request{Conversation: keys[rank]}
		i := bounded.pick(q)
		bounded.view.Book[i].Outstanding++
		if home.pick(q) == i {
			run.home += 100.0 / ringRequests
		}
	}
	most := int32(0)
	for i := range bounded.view.Book {
		most = max(most, bounded.view.Book[i].Outstanding)
	}
	share := float64(ringRequests) / float64(x.replicas)
	run.most = float64(most) / share
	run.cap = float64(most) <= math.Ceil(factor*share)
	return run
}

// ringFactors are the rows of the ring's table beside the setting's.
var ringFactors = []float64{unbounded, 2, 1.5}

// ringRuns are a row's runs, by seed.
type ringRuns struct {
	most, home []float64
	capped     bool
}

func (x *choices) ring(seeds int, skew, factor float64) ringRuns {
	all := ringRuns{capped: true}
	for s := range seeds {
		r := x.hash(x.root(s), skew, factor)
		all.most, all.home, all.capped = append(all.most, r.most), append(all.home, r.home), all.capped && r.cap
	}
	return all
}

func (x *choices) ringTable(seeds int) (Table, Plot, []ringRuns) {
	t := Table{Name: "ring", Title: fmt.Sprintf("%s requests on %s keys round a ring of %d replicas", decimal(ringRequests, 0), decimal(float64(x.keys), 0), x.replicas),
		Columns: []Column{{Name: "load factor c"}, {Name: "greatest load, in equal shares"}, {Name: "at their key's home", Unit: "%"}}}
	p := Plot{Name: "ring", Title: "the ring: balance against locality", Kind: Dots, X: Axis{Label: "requests at their key's home", Unit: "%", Most: 100}, Y: Axis{Label: "greatest load", Unit: "equal shares"},
		Series: []Series{{Name: "load factor c"}}}
	var all []ringRuns
	for _, factor := range append(append([]float64(nil), ringFactors...), x.factor) {
		r := x.ring(seeds, x.skew, factor)
		all = append(all, r)
		name := "none"
		if factor < unbounded {
			name = show(factor)
		}
		t.Rows = append(t.Rows, []Cell{Text(name), Mean(r.most, 2), Mean(r.home, 0)})
		p.Series[0].dot(name, r.home, r.most)
	}
	free, bound := all[0], all[len(all)-1]
	p.Says = fmt.Sprintf("Without a bound the fullest replica has %s equal shares and every request is at home; with c = %s it has %s, and %s %% are at home.",
		decimal(average(free.most), 2), show(x.factor), decimal(average(bound.most), 2), decimal(average(bound.home), 0))
	return t, p, all
}

// moved returns which part of the keys live elsewhere once one more replica is on the ring.
func (x *choices) moved(root uint64) float64 {
	const keys = 1000
	before := newRouter(&policy.ConsistentHash{Key: "conversation", Blocks: 1, LoadFactor: unbounded}, x.replicas, root, 0)
	after := newRouter(&policy.ConsistentHash{Key: "conversation", Blocks: 1, LoadFactor: unbounded}, x.replicas+1, root, 0)
	n := 0
	for k := range keys {
		q := &selection.Request{Conversation: kvblock.Seed("moved", fmt.Sprint(root), fmt.Sprint(k))}
		if before.pick(q) != after.pick(q) {
			n++
		}
	}
	return float64(n) / keys
}

func (x *choices) run(seeds int) Findings {
	rows := x.balls(seeds)
	balls, ballPlot := ballTable(rows)
	queues, queuePlot, stays := x.queueTable(seeds)
	turns, spreads, formula := x.dealTable(seeds)
	ring, ringPlot, rings := x.ringTable(seeds)
	even := x.ring(seeds, 0, unbounded)
	var moves []float64
	for s := range seeds {
		moves = append(moves, x.moved(x.root(s)))
	}
	v := append(ballVerdicts(rows), queueVerdicts(stays, x.rho)...)
	v = append(v, dealVerdict(spreads, formula))
	v = append(v, ringVerdicts(rings, even, moves, x.replicas)...)
	return Findings{Tables: []Table{balls, queues, turns, ring}, Plots: []Plot{ballPlot, queuePlot, ringPlot}, Verdicts: v}
}

func ballVerdicts(rows []ballRow) []Verdict {
	first, last := rows[0], rows[len(rows)-1]
	least, most := math.Inf(1), 0.0
	low, high := math.Inf(1), math.Inf(-1)
	for _, row := range rows {
		ratio := average(row.most[0]) / oneGrowth(row.bins)
		least, most = min(least, ratio), max(most, ratio)
		rest := average(row.most[1]) - growth(row.bins, 2)
		low, high = min(low, rest), max(high, rest)
	}
	one, two, eight := average(last.most[0]), average(last.most[1]), average(last.most[4])
	part := (one - two) / (one - eight)
	return []Verdict{
		holds("4.1", "n balls in n bins at random: the greatest load is Θ(ln n/ln ln n)", most/least < 1.5,
			fmt.Sprintf("%s to %s times that, from %s bins to %s", decimal(least, 2), decimal(most, 2), decimal(float64(first.bins), 0), decimal(float64(last.bins), 0))),
		holds("4.1", "the less loaded of two: it is ln ln n/ln 2 + Θ(1)", high-low < 1, fmt.Sprintf("that plus %s to %s", decimal(low, 2), decimal(high, 2))),
		above("4.1", fmt.Sprintf("one extra observation buys an exponential improvement: from %s bins to %s the load of one choice grows more than that of two",
			decimal(float64(first.bins), 0), decimal(float64(last.bins), 0)), differences(last.most[0], first.most[0]), differences(last.most[1], first.most[1]), 1, " balls"),
		holds("4.1", "more than two choices gain little: two to eight less than one to two", one-two > two-eight,
			fmt.Sprintf("%s balls less, then %s", decimal(one-two, 1), decimal(two-eight, 1))),
		holds("4.1", "nearly all of the gain comes from going from one choice to two: in the greatest load", part >= 0.8,
			fmt.Sprintf("%s of the gain up to eight choices: %s, %s and %s balls", percentText(part), decimal(one, 1), decimal(two, 1), decimal(eight, 1))).
			because("At such sizes the greatest load is a small whole number, of which a third choice still takes one; 1/ln d is an order for numbers of bins without bound. " +
				"On queues the statement holds."),
	}
}

func queueVerdicts(stays [][]float64, rho float64) []Verdict {
	part := (manyQueues(rho, 1) - manyQueues(rho, 2)) / (manyQueues(rho, 1) - manyQueues(rho, 8))
	off := 0.0
	for i, d := range drawnChoices {
		off = max(off, relative(average(stays[i]), manyQueues(rho, d)))
	}
	const full, less = 0.95, 0.9
	return []Verdict{
		holds("4.1", "the same effect holds for dynamic load balancing (Mitzenmacher)", off < 0.1,
			fmt.Sprintf("drawn times are within %s of those of infinitely many queues", percentText(off))),
		holds("4.1", "nearly all of the gain comes from going from one choice to two: in the time on queues", part >= 0.8, percentText(part)+" of the gain up to eight choices"),
		holds("10", "near ρ = 1 lowering the arrival rate beats any change of routing rule (ρ = 0.95, a tenth less)", manyQueues(full*less, 1) < manyQueues(full, 2),
			fmt.Sprintf("%s services with one choice; a tenth less load makes it %s, a second choice %s", decimal(manyQueues(full, 1), 1), decimal(manyQueues(full*less, 1), 1), decimal(manyQueues(full, 2), 1))).
			because("The formula of section 1.2 is of one queue, in which no rule can change anything. Where there are several, a rule that sees load makes them act as one; " +
				"beyond it little is left for rules, and then less load wins."),
	}
}

func dealVerdict(spreads [][]float64, formula []float64) Verdict {
	off := 0.0
	for i := range formula {
		off = max(off, relative(average(spreads[i]), formula[i]))
	}
	last := len(formula) - 1
	return holds("4.1", "round robin's work per replica is spread by C_s/√(n/k), which shrinks towards zero", off < 0.15 && formula[last] < formula[0]/10,
		fmt.Sprintf("off by at most %s; %s after %d requests, %s after %s", percentText(off), decimal(average(spreads[0]), 2), dealt[0], decimal(average(spreads[last]), 2), decimal(float64(dealt[last]), 0)))
}

func ringVerdicts(rings []ringRuns, even ringRuns, moves []float64, replicas int) []Verdict {
	free, bound := rings[0], rings[len(rings)-1]
	capped := true
	for _, r := range rings[1:] {
		capped = capped && r.capped
	}
	return []Verdict{
		above("4.1", "consistent hashing has hot spots under skewed keys", free.most, even.most, 2, " equal shares"),
		holds("4.1", "with bounded loads no node has more than ⌈c·m/n⌉", capped, "true in every run of the table"),
		above("4.1", "the bound takes from locality what it gives to balance", free.home, bound.home, 0, " points"),
		within("6.2", "growing the pool from n to n + 1 moves about 1/(n + 1) of the keys", 1/float64(replicas+1), moves, 0.05, 2, ""),
	}
}

// differences returns a - b by seed.
func differences(a, b []float64) []float64 {
	d, _ := pairs(a, b)
	return d
}
