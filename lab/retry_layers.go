package lab

import (
	"fmt"
	"time"

	"kvasir/accelerator"
	"kvasir/engine"
	"kvasir/gateway/attempt"
	"kvasir/internal/mono"
	"kvasir/internal/seed"
	"kvasir/selection"
	"kvasir/selection/policy"
	"kvasir/sim"
)

// What the layers come to where one of them is Kvasir: its own machine, in virtual time, with
// clients before it that try again as SDKs and tool loops do.

// The phases of a run, by when calls come.
const (
	steadyPhase = iota
	outagePhase
	afterPhase
	phases
)

var phaseNames = [phases]string{"steady", "outage", "after"}

// layering is a row of the comparison.
type layering struct {
	name    string
	budget  bool // Kvasir's own defaults; else every call has all its attempts
	knows   bool // incoming retries are recognised
	listens bool // the SDK heeds x-should-retry, as OpenAI's and Anthropic's do
}

// The rows of both tables.
const (
	asItIs = iota
	deafClients
	withoutOne // of what each table is about
	layerings
)

func (x *amplification) layerings() [layerings]layering {
	return [layerings]layering{
		{"Kvasir", true, true, true},
		{"Kvasir, SDKs that heed nothing", true, true, false},
		{"neither a budget nor incoming retries recognised", false, false, false},
	}
}

// quiet is how many calls of users come a second where the floor would pay for all of them.
const quiet = 0.2

// quietLayerings are the rows where so few come that every attempt is within the floor.
func (x *amplification) quietLayerings() [layerings]layering {
	rows := x.layerings()
	rows[withoutOne] = layering{"and incoming retries not recognised", true, false, false}
	return rows
}

// amplified is what a phase of a run came to.
type amplified struct {
	users    float64 // calls of users
	answered float64 // of those
	calls    float64 // that reach Kvasir
	attempts float64 // that it makes upstream
	most     float64 // of one call
}

// perCall is upstream attempts for each call that reaches Kvasir.
func (a *amplified) perCall() float64 { return a.attempts / a.calls }

// userCall is a user's call on its way through the layers above Kvasir.
type userCall struct {
	number uint64
	phase  int
	tries  int // of the SDK, within the tool loop's
	loops  int // of the tool loop
}

// layered is the feed: users come at random, and what fails is tried again by the SDK and then
// by the tool loop.
type layered struct {
	x     *amplification
	way   layering
	rate  float64
	root  uint64
	next  mono.Time
	users uint64
	calls selection.CallID
	by    [phases]amplified
}

func (f *layered) phase(at mono.Time) int {
	return min(int(at.Duration()/f.x.phase()), phases-1)
}

// Next implements sim.Feed.
func (f *layered) Next(c *sim.Call) bool {
	f.users++
	r := seed.New(f.root, seed.Arrival, f.users, 0)
	f.next = f.next.Add(mono.FromSeconds(exponential(&r)/f.rate)) + 1
	if f.next.Duration() >= phases*f.x.phase() {
		return false
	}
	u := &userCall{number: f.users, phase: f.phase(f.next)}
	f.by[u.phase].users++
	f.fill(c, u, f.next)
	return true
}

// fill makes a try of the SDK a call. The tool loop's own tries are new calls to it.
func (f *layered) fill(c *sim.Call, u *userCall, at mono.Time) {
	const prompt = 64
	u.tries++
	f.calls++
	c.At, c.Tag = at, u
	c.Request.ID, c.Request.Kind, c.Request.InputTokens = f.calls, selection.Embed, prompt
	c.Request.Retry = f.way.knows && u.tries > 1
	c.Prompt.PromptTokens = prompt
}

// Ended implements sim.Feed.
func (f *layered) Ended(now mono.Time, r *sim.Record, follow func() *sim.Call) {
	u := r.Tag.(*userCall)
	a := &f.by[f.phase(r.At)]
	a.calls++
	a.attempts += float64(r.Attempts)
	a.most = max(a.most, float64(r.Attempts))
	if r.Succeeded() {
		f.by[u.phase].answered++
		return
	}
	jitter := seed.New(f.root, seed.Backoff, u.number, uint64(u.loops)<<32|uint64(u.tries))
	// OpenAI's SDKs: 0.5 s, doubled up to 8 s, less up to a quarter of it at random.
	wait := min(0.5*backoff(u.tries), 8) * (1 - float64(jitter.Float64()/4))
	if u.tries >= f.x.sdk || f.way.listens && r.Final() {
		if u.loops++; u.loops >= f.x.tool {
			return
		}
		u.tries, wait = 0, 0.5+jitter.Float64() // a tool loop: half a second to one and a half
	}
	f.fill(follow(), u, now.Add(mono.FromSeconds(wait))+1)
}

// phase is how long each phase lasts.
func (x *amplification) phase() time.Duration { return time.Duration(x.seconds) * time.Second }

// layer runs one row on a seed: so many seconds in which a share of the attempts fails, as many
// in which all do, and as many after.
func (x *amplification) layer(way layering, rate float64, root uint64) [phases]amplified {
	profile, err := accelerator.Lookup("llama-3.1-8b/h100")
	if err != nil {
		panic(err) // it is of the catalogue
	}
	rule, _ := policy.Lookup("least-outstanding")
	s := sim.Scenario{Rule: rule, Seed: root}
	from, to := mono.Time(x.phase()), mono.Time(2*x.phase())
	for range x.replicas {
		s.Engines = append(s.Engines, sim.Engine{Config: engine.Defaults(profile), Faults: []sim.Fault{
			{From: from, To: to, Share: 1, Seed: root, Outcome: attempt.Failed, Wait: attempt.NoWait},
			{From: 0, To: mono.Never, Share: x.steady, Seed: root, Outcome: attempt.Failed, Wait: attempt.NoWait},
		}})
	}
	s.Defaults()
	if !way.budget {
		s.Retry.Ratio, s.Retry.Floor, s.Retry.TotalFloor = 1, 1e6, 1e6
	}
	feed := &layered{x: x, way: way, rate: rate, root: root}
	if _, err := sim.Run(sim.Config{Stopped: x.stopped, Engines: s.Engines, Routers: []sim.Router{s.Router(0)}, Feed: feed}); err != nil {
		x.fail(err) // it is stopped: the settings' bounds leave no room for a mistake
	}
	return feed.by
}

// layered returns the rows' runs, by phase and seed.
func (x *amplification) layered(rows [layerings]layering, rate float64, seeds int) (all [layerings][phases][]amplified) {
	for s := range seeds {
		root := x.root(s)
		for i, way := range rows {
			for phase, a := range x.layer(way, rate, root) {
				if a.users > 0 {
					all[i][phase] = append(all[i][phase], a)
				}
			}
		}
	}
	return all
}

// each maps what runs came to.
func each(runs []amplified, of func(*amplified) float64) []float64 {
	var out []float64
	for i := range runs {
		out = append(out, of(&runs[i]))
	}
	return out
}

func (x *amplification) kvasirTable(all [layerings][phases][]amplified) Table {
	t := Table{Name: "kvasir", Title: fmt.Sprintf("Kvasir between clients that try %s times in loops of %s and engines of which %s of the attempts fail, then all for %s s, then %s again",
		decimal(float64(x.sdk), 0), decimal(float64(x.tool), 0), percentText(x.steady), decimal(float64(x.seconds), 0), percentText(x.steady)),
		Columns: []Column{{Name: "retries"}, {Name: "phase"}, {Name: "calls of users"}, {Name: "answered", Unit: "%"}, {Name: "calls that reach Kvasir"},
			{Name: "upstream attempts"}, {Name: "attempts a call"}, {Name: "most of one call"}}}
	for i, way := range x.layerings() {
		for phase, runs := range all[i] {
			t.Rows = append(t.Rows, []Cell{
				Text(way.name), Text(phaseNames[phase]),
				Mean(each(runs, func(a *amplified) float64 { return a.users }), 0),
				Mean(each(runs, func(a *amplified) float64 { return 100 * a.answered / a.users }), 1),
				Mean(each(runs, func(a *amplified) float64 { return a.calls }), 0),
				Mean(each(runs, func(a *amplified) float64 { return a.attempts }), 0),
				Mean(each(runs, (*amplified).perCall), 3),
				Mean(each(runs, func(a *amplified) float64 { return a.most }), 0),
			})
		}
	}
	return t
}

func (x *amplification) quietTable(all [layerings][phases][]amplified) Table {
	t := Table{Name: "quiet", Title: fmt.Sprintf("the same outage where a user calls each %s s, so that the floor would pay for every attempt", show(1/quiet)),
		Columns: []Column{{Name: "retries"}, {Name: "calls that reach Kvasir, a call of a user"}, {Name: "upstream attempts, a call of a user"}, {Name: "attempts a call"}}}
	for i, way := range x.quietLayerings() {
		runs := all[i][outagePhase]
		t.Rows = append(t.Rows, []Cell{
			Text(way.name), meanOrNothing(each(runs, func(a *amplified) float64 { return a.calls / a.users }), 1),
			meanOrNothing(each(runs, func(a *amplified) float64 { return a.attempts / a.users }), 1),
			meanOrNothing(each(runs, (*amplified).perCall), 2),
		})
	}
	return t
}

func (x *amplification) kvasirPlot(all [layerings][phases][]amplified) Plot {
	p := Plot{Name: "kvasir", Title: "upstream attempts for each call of a user", Kind: Bars, Y: Axis{Label: "attempts"}}
	perUser := func(a *amplified) float64 { return a.attempts / a.users }
	for _, way := range x.layerings() {
		p.X.Names = append(p.X.Names, way.name)
	}
	for _, phase := range []int{steadyPhase, outagePhase} {
		var runs [][]float64
		for i := range all {
			runs = append(runs, each(all[i][phase], perUser))
		}
		p.Series = append(p.Series, bars(phaseNames[phase], runs...))
	}
	mean := func(row int) string { return decimal(average(each(all[row][outagePhase], perUser)), 1) }
	p.Says = fmt.Sprintf("In the outage a user's call comes to %s attempts; with SDKs that heed nothing to %s, and without a budget to %s.", mean(asItIs), mean(deafClients), mean(withoutOne))
	return p
}

func (x *amplification) kvasirVerdicts(all, few [layerings][phases][]amplified, seeds int) []Verdict {
	perCall := func(row, phase int) []float64 { return each(all[row][phase], (*amplified).perCall) }
	perUser := func(row, phase int) []float64 {
		return each(all[row][phase], func(a *amplified) float64 { return a.attempts / a.users })
	}
	most := 0.0
	for i := range all {
		for phase := range all[i] {
			for _, a := range all[i][phase] {
				most = max(most, a.most)
			}
		}
	}
	ceiling := float64(1 + attempt.Default().Ceiling())
	return []Verdict{
		above("9.1", "Kvasir in steady state: fewer than 1.1 upstream attempts a call that reaches it", times(1.1, ones(seeds)), perCall(asItIs, steadyPhase), 3, " attempts"),
		above("9.1", "in an outage, too", times(1.1, ones(seeds)), perCall(asItIs, outagePhase), 3, " attempts"),
		holds("9.1", "no call has more attempts than the ceiling", most <= ceiling && most > 1, fmt.Sprintf("%s at most, the ceiling is %s", decimal(most, 0), decimal(ceiling, 0))),
		above("9.1", "without a budget an outage is multiplied by it", perCall(withoutOne, outagePhase), times(0.9*ceiling, ones(seeds)), 2, " attempts"),
		above("9.1", "a client that heeds the header makes less of an outage", perUser(deafClients, outagePhase), perUser(asItIs, outagePhase), 1, " attempts a call of a user"),
		above("9.1", "where the floor would pay for all, what comes again and is known as such makes a third less of it, and more",
			times(2.0/3, each(few[withoutOne][outagePhase], (*amplified).perCall)), each(few[deafClients][outagePhase], (*amplified).perCall), 2, " attempts a call"),
	}
}
