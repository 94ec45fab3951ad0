package lab

import (
	"bufio"
	"bytes"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"kvasir/internal/testkit/fulltrace"
	"kvasir/selection"
)

// aDuel returns a duel with the defaults but for its policies, and its first seed's runs.
func aDuel(t *testing.T, left, right string) (*duel, duelRun, duelRun) {
	t.Helper()
	d := duelLab().settings().(*duel)
	d.left, d.right, d.calls = left, right, 150
	s, err := d.script(1)
	if err != nil {
		t.Fatal(err)
	}
	return d, d.play(s, 1, left, right), d.play(s, 1, right, left)
}

func tableOf(t *testing.T, r *Result, name string) *Table {
	t.Helper()
	for i := range r.Tables {
		if r.Tables[i].Name == name {
			return &r.Tables[i]
		}
	}
	return nil
}

func runDuel(t *testing.T, settings ...Setting) *Result {
	t.Helper()
	r, err := duelLab().Run(Options{Settings: settings, Seeds: 2})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestDuel_OfAPolicyWithItself: every call fares the same, there is nothing to explain, and the
// shadow chooses otherwise only between equals.
func TestDuel_OfAPolicyWithItself(t *testing.T) {
	for _, policy := range []string{"predicted-ttft", "least-outstanding", "kv-cost"} {
		r := runDuel(t, Setting{"left", policy}, Setting{"right", policy}, Setting{"calls", "150"})
		rows := tableOf(t, r, "policies").Rows
		for i := range rows[0] {
			if a, b := rows[0][i].String(), rows[1][i].String(); a != b {
				t.Errorf("%s: %s and %s", policy, a, b)
			}
			if x := rows[2][i]; !x.IsText() && x.Value() != 0 {
				t.Errorf("%s: a difference of %s", policy, x)
			}
		}
		for _, name := range []string{"calls", "why", "parts"} {
			if tableOf(t, r, name) != nil {
				t.Errorf("%s: there is a table %s", policy, name)
			}
		}
		_, run, _ := aDuel(t, policy, policy)
		for i := range run.calls {
			x := run.calls[i].decision
			for k, score := range x.Shadow.Scores {
				if score != x.Candidates[k].Score {
					t.Fatalf("%s: call %d: %v, in the shadow %v", policy, i, x.Candidates[k].Score, score)
				}
			}
			if x.Shadow.Scores[x.Shadow.Chosen] != x.Shadow.Scores[x.Chosen] {
				t.Errorf("%s: call %d: the shadow chooses otherwise, though not between equals", policy, i)
			}
			if !x.Shadow.Agrees && x.Shadow.OverlapTokens[x.Shadow.Chosen] == x.Shadow.OverlapTokens[x.Chosen] && x.Candidates[x.Shadow.Chosen].Outstanding == x.Candidates[x.Chosen].Outstanding {
				t.Errorf("%s: call %d: the shadow draws another one of equals, and is said to differ", policy, i)
			}
		}
	}
}

// TestDuel_SwappedIsMirrored: who is left and who is right changes no figure.
func TestDuel_SwappedIsMirrored(t *testing.T) {
	a := runDuel(t, Setting{"left", "round-robin"}, Setting{"right", "cache-aware"})
	b := runDuel(t, Setting{"left", "cache-aware"}, Setting{"right", "round-robin"})
	x, y := tableOf(t, a, "policies").Rows, tableOf(t, b, "policies").Rows
	for i := range x[0] {
		if x[0][i].String() != y[1][i].String() || x[1][i].String() != y[0][i].String() {
			t.Errorf("%s, %s; swapped %s, %s", x[0][i], x[1][i], y[0][i], y[1][i])
		}
		if !x[2][i].IsText() && x[2][i].Value() != -y[2][i].Value() {
			t.Errorf("difference %s, swapped %s", x[2][i], y[2][i])
		}
	}
	lines := func(r *Result) []string {
		var all []string
		for _, row := range tableOf(t, r, "shadow").Rows {
			all = append(all, fmt.Sprint(row))
		}
		slices.Sort(all)
		return all
	}
	if p, q := lines(a), lines(b); !slices.Equal(p, q) {
		t.Errorf("shadows\n%s\nswapped\n%s", strings.Join(p, "\n"), strings.Join(q, "\n"))
	}
}

// TestDuel_ExplainsByTheDecision's numbers.
func TestDuel_ExplainsByTheDecision(t *testing.T) {
	d := &duel{left: "least-outstanding", right: "predicted-ttft"}
	part := func(backlog, prefill float64) []selection.Part {
		return []selection.Part{{Name: "backlog_seconds", Value: backlog}, {Name: "prefill_seconds", Value: prefill}, {Name: "start_seconds", Value: 0.01}, {Name: "busy_share", Value: 0.5}, {Name: "ttft_cost", Value: 2}}
	}
	x := &selection.Decision{
		Policy: "least-outstanding", Reason: "fewest", Chosen: 1,
		Candidates: []selection.Candidate{{Endpoint: "engine-1", Outstanding: 5}, {Endpoint: "engine-3", Outstanding: 3}},
		Shadow: &selection.Shadow{
			Policy: "predicted-ttft", Reason: "nearest", Chosen: 0, Scores: []float64{1, 3}, OverlapTokens: []int{4096, 0},
			Parts: [][]selection.Part{part(0.09, 0.2), part(0.04, 0.85)},
		},
	}
	if got, want := d.explain(x, 5120), "least-outstanding chooses replica 3 (fewest), which holds none of its 5,120 tokens and has 2 calls fewer under way; "+
		"predicted-ttft would choose replica 1 (nearest), which holds 4,096 of its 5,120 tokens; it predicts a TTFT of 0.30 s there, 0.90 s here."; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got, want := partsText(x.Shadow.Parts[0]), "backlog 0.090 s, prefill 0.200 s, start 0.010 s, busy 50 %, ttft cost 2.000"; got != want {
		t.Errorf("got %s", got)
	}
	x.Shadow.Parts = nil
	if got := d.explain(x, 5120); !strings.HasSuffix(got, "its score is 1.000 there, 3.000 here.") {
		t.Errorf("got %s", got)
	}
	x.Shadow.Scores[1] = math.NaN()
	if got := d.explain(x, 5120); !strings.HasSuffix(got, "4,096 of its 5,120 tokens.") {
		t.Errorf("got %s", got)
	}
	x.Shadow.Chosen = 1
	if got, want := d.explain(x, 5120), "both choose replica 3 (least-outstanding: fewest; predicted-ttft: nearest), which holds none of its 5,120 tokens."; got != want {
		t.Errorf("got %s", got)
	}
	blind := &duel{left: "random", right: "round-robin"}
	if got := blind.explain(x, 5120); strings.Contains(got, "holds") {
		t.Errorf("neither policy looks at caches: %s", got)
	}
	for n, want := range map[int]string{0: "as many", 1: "1 call more", -1: "1 call less", 7: "7 calls more", -7: "7 calls fewer"} {
		if got := moreCalls(n); !strings.HasPrefix(got, want) {
			t.Errorf("%d: %s", n, got)
		}
	}
}

// TestDuel_TablesAndPlayerShowTheRuns: the figures call by call are those of the calls.
func TestDuel_TablesAndPlayerShowTheRuns(t *testing.T) {
	d, left, right := aDuel(t, "least-outstanding", "predicted-ttft")
	all := pairCalls(&left, &right)
	if len(all) != 150 {
		t.Fatalf("%d pairs", len(all))
	}
	far := farthest(all)
	if len(far) != shownCalls {
		t.Fatalf("%d calls are shown", len(far))
	}
	least := (far[len(far)-1].left.ttft() - far[len(far)-1].right.ttft()).Abs()
	beyond := 0
	for i, p := range all {
		if p.number != i+1 || i > 0 && p.left.at < all[i-1].left.at || p.left.session != p.right.session || p.left.prompt != p.right.prompt {
			t.Errorf("pair %d: %+v, %+v", i, p.left, p.right)
		}
		if (p.left.ttft() - p.right.ttft()).Abs() > least {
			beyond++
		}
	}
	if beyond >= shownCalls {
		t.Errorf("%d calls differ more than the last that is shown", beyond)
	}
	tables := d.callTables(all)
	for i, row := range tables[0].Rows {
		p := far[i]
		if row[0].Value() != float64(p.number) || row[6].Value() != p.left.ttft().Seconds() || row[8].Value() != float64(p.right.cached) || row[10].Value() != (p.left.ttft()-p.right.ttft()).Seconds() {
			t.Errorf("row %d: %v for %+v, %+v", i, row, p.left, p.right)
		}
	}
	player := d.player(all)
	if player.Steps != 150 || len(player.Boards) != 2 {
		t.Fatalf("%d steps", player.Steps)
	}
	for b, board := range player.Boards {
		if len(board.Frames) != player.Steps || len(board.Track.Values) != player.Steps {
			t.Fatalf("%d frames", len(board.Frames))
		}
		for i, f := range board.Frames {
			c := []*duelCall{all[i].left, all[i].right}[b]
			if f.Head != player.Boards[0].Frames[i].Head || len(f.Lanes) != d.replicas {
				t.Errorf("frame %d: %+v", i, f)
			}
			want := Miss
			if c.cached > 0 {
				want = Hit
			}
			for r, l := range f.Lanes {
				chosen := l.Fresh > 0
				if chosen != (r == c.replica) || chosen && l.State != want || l.Value > player.Most {
					t.Errorf("frame %d, lane %d: %+v; the call went to %d and found %d", i, r, l, c.replica, c.cached)
				}
			}
			if flagged, differs := slices.Contains(board.Track.Flags, i), !c.decision.Shadow.Agrees; flagged != differs {
				t.Errorf("frame %d: flagged %v, differs %v", i, flagged, differs)
			}
		}
	}
	var n shadowCount
	for _, r := range left.shadow {
		n.plus(r.shadowCount)
	}
	if flags := len(player.Boards[0].Track.Flags); n.picks != 150 || n.differs != flags {
		t.Errorf("%d of %d picks differ, %d are flagged", n.differs, n.picks, flags)
	}
}

// TestDuel_KeepsTheCallsOfTheFirstSeedAlone, and of the others what the tables have.
func TestDuel_KeepsTheCallsOfTheFirstSeedAlone(t *testing.T) {
	d, left, _ := aDuel(t, "least-outstanding", "predicted-ttft")
	all, _ := d.runs(3)
	for i, run := range append(slices.Clone(all.left), all.right...) {
		if kept := len(run.calls) > 0; kept != (i%3 == 0) || run.output == 0 || run.last == 0 || run.summary == nil {
			t.Errorf("run %d has %d calls, %d tokens until %v", i, len(run.calls), run.output, run.last)
		}
	}
	tokens, last := 0, time.Duration(0)
	for _, c := range left.calls {
		tokens, last = tokens+c.output, max(last, c.end)
	}
	if left.output != tokens || left.last != last {
		t.Errorf("%d tokens until %v; its calls have %d until %v", left.output, left.last, tokens, last)
	}
}

// TestShadowCount sums what is more at the shadow's choice, over the picks that differ.
func TestShadowCount(t *testing.T) {
	pick := func(chosen, shadow int) *selection.Decision {
		return &selection.Decision{
			Chosen: chosen, Candidates: []selection.Candidate{{Outstanding: 7}, {Outstanding: 4}, {Outstanding: 9}},
			Shadow: &selection.Shadow{Reason: "nearest", Chosen: shadow, Agrees: shadow == chosen, OverlapTokens: []int{512, 0, 4096}},
		}
	}
	tally := func(picks []*selection.Decision, rule string) reasonCounts {
		all := reasonsOf(rule)
		for _, d := range picks {
			all.add(d)
		}
		return all
	}
	all := tally([]*selection.Decision{pick(0, 0), pick(0, 2), pick(1, 0), pick(2, 1)}, "predicted-ttft")
	if got, want := all[0], (reasonCount{"nearest", shadowCount{picks: 4, differs: 3, overlap: 3584 + 512 - 4096, outstanding: 2 + 3 - 5}}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	one := tally([]*selection.Decision{pick(0, 2)}, "predicted-ttft")
	if got, want := one[0].shadowCount, (shadowCount{picks: 1, differs: 1, overlap: 3584, outstanding: 2}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestFullest counts calls at instants.
func TestFullest(t *testing.T) {
	second := func(n int) time.Duration { return time.Duration(n) * time.Second }
	run := &duelRun{calls: []duelCall{{at: 0, end: second(50), replica: 0}, {at: second(10), end: second(30), replica: 0}, {at: second(20), end: second(100), replica: 1}, {at: 0, end: second(100), replica: -1}}}
	s := fullest(run, 2, second(200))
	for i, want := range map[int]float64{0: 1, 9: 1, 10: 2, 29: 2, 30: 1, 99: 1, 100: 0, 199: 0} {
		if s.X[i] != float64(i) || s.Y[i] != want {
			t.Errorf("at %v s: %v, want %v", s.X[i], s.Y[i], want)
		}
	}
}

// TestDuel_OnATraceOfOnesOwn says what of it was not played.
func TestDuel_OnATraceOfOnesOwn(t *testing.T) {
	const head, line = "TIMESTAMP,ContextTokens,GeneratedTokens\n", "2023-11-16 18:17:%02d.5000000,%d,20\n"
	var b strings.Builder
	b.WriteString(head)
	for i := range 30 {
		tokens := 512
		if i == 3 {
			tokens = 900_000
		}
		fmt.Fprintf(&b, line, i, tokens)
	}
	own := &Trace{Name: "own.jsonl", Data: []byte(b.String())}
	r, err := duelLab().Run(Options{Settings: []Setting{{"calls", "20"}}, Seeds: 1, Trace: own})
	if err != nil {
		t.Fatal(err)
	}
	row := tableOf(t, r, "trace").Rows[0]
	if got := fmt.Sprint(row); r.Trace != "own.jsonl" || row[0].String() != "own.jsonl" || row[2].Value() != 20 ||
		!strings.Contains(got, "cut: it has more calls; 1 calls left out") || len(r.Verdicts) != 0 {
		t.Errorf("got %s, %d verdicts", got, len(r.Verdicts))
	}
	for text, want := range map[string]string{
		"":                                   "empty",
		"{}":                                 "own.jsonl",
		head + "x":                           "the line has 1 fields",
		head + fmt.Sprintf(line, 1, 900_000): "no call of at most 131072 tokens",
		head + fmt.Sprintf(line, 1, 9) + "2023-11-21 18:17:00,9,20\n": "its first 2 calls last 7h30m",
	} {
		if _, err := duelLab().Run(Options{Seeds: 1, Trace: &Trace{Name: "own.jsonl", Data: []byte(text)}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestExcerpts_AreWhatTheirReadmeSays, where the whole traces are there.
func TestExcerpts_AreWhatTheirReadmeSays(t *testing.T) {
	f, err := os.Open(fulltrace.Path(t, "mooncake/conversation_trace.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := map[string]bool{}
	for s := bufio.NewScanner(f); s.Scan(); {
		lines[s.Text()] = true
	}
	n := 0
	for l := range bytes.Lines(conversationExcerpt) {
		n++
		if !lines[strings.TrimSuffix(string(l), "\n")] {
			t.Fatalf("no line of the trace: %s", l)
		}
	}
	if n != 391 {
		t.Errorf("%d lines", n)
	}
}
