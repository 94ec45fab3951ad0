package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kvasir/test/validation/stage"
)

// sound is what a run of all policies gives where everything holds: sticky-until-saturated
// and cache-aware are tied by mean TTFT. Of the calls a tenth as many miss the SLO as it has
// seconds.
func sound() []result {
	make := func(policy string, live float64, simulated ...float64) result {
		r := result{policy: policy, live: &stage.Run{Lags: []stage.Lag{{Mean: 0.0005, P99: 0.004}}}, said: &predictions{policies: map[string]int{policy: 100}}}
		r.live.Calls, r.live.TTFT.Mean, r.live.Good = 100, live, new(1-live/10)
		for _, x := range simulated {
			var f stage.Figures
			f.TTFT.Mean, f.Good = x, new(1-x/10)
			r.simulated = append(r.simulated, f)
		}
		return r
	}
	all := []result{
		make("least-outstanding", 9, 8, 10), make("kv-cost", 1.1, 1, 1.05), make("cache-aware", 0.75, 0.72, 0.78),
		make("sticky-until-saturated", 0.74, 0.75, 0.77), make(predictor, 0.5, 0.49, 0.5),
	}
	all[4].said.ratios = []float64{0.5, 0.8, 0.9, 0.95, 1, 1, 1.05, 1.1, 1.2, 2}
	return all
}

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		name    string
		change  func(all []result)
		ranking bool
		want    string // in what is wrong; none: nothing is
	}{
		{name: "as it must be", change: func([]result) {}},
		{name: "tied policies may rank as they like", change: func(all []result) { swap(&all[2], &all[3]) }},
		{name: "two policies swapped", change: func(all []result) { swap(&all[1], &all[2]) }, want: "by mean TTFT, cache-aware is better than kv-cost as simulated, and not in real time"},
		{name: "two policies swapped by the SLO alone", change: func(all []result) {
			all[1].live.Good, all[2].live.Good = all[2].live.Good, all[1].live.Good
		}, want: "by share of calls that miss the SLO, cache-aware is better than kv-cost as simulated, and not in real time"},
		{name: "likewise where only the ranking counts", change: func(all []result) { swap(&all[0], &all[4]) }, ranking: true, want: "by mean TTFT, " + predictor + " is better than least-outstanding"},
		{name: "another policy in the file", change: func(all []result) { all[1].said.policies = map[string]int{"cache-aware": 100} }, want: "kv-cost: of 100 calls"},
		{name: "a call that another policy placed", change: func(all []result) { all[1].said.policies = map[string]int{"cache-aware": 1, "kv-cost": 99} }, want: "kv-cost: of 100 calls"},
		{name: "a call too many", change: func(all []result) { all[1].said.policies["cache-aware"] = 1 }, want: "kv-cost: of 100 calls"},
		{name: "predictions times 1.3", change: func(all []result) {
			for i := range all[4].said.ratios {
				all[4].said.ratios[i] *= 1.3
			}
		}, want: "predictions are off by 30.0 % at the median; allowed: 15 %"},
		{name: "no predictions", change: func(all []result) { all[4].said.ratios, all[4].said.short = nil, 100 }, want: "0 of 100 calls were predicted"},
		{name: "nothing to predict", change: func(all []result) { all[4].said.ratios = nil }, want: "predictions are off by NaN"},
		{name: "few predictions", change: func(all []result) { all[4].said.short = 90 }, want: "10 of 100 calls were predicted"},
		{name: "a late engine", change: func(all []result) { all[2].live.Lags = append(all[2].live.Lags, stage.Lag{P99: 0.03}) }, want: "cache-aware: the run does not count"},
		{name: "always a little late", change: func(all []result) { all[2].live.Lags[0].Mean = 0.003 }, want: "cache-aware: the run does not count"},
		{name: "late where only the ranking counts", change: func(all []result) { all[2].live.Lags[0].P99 = 1 }, ranking: true},
		{name: "a rate that tells nothing", change: func(all []result) { all[4].simulated[0].TTFT.Mean = 0.73 }, want: "the rate does not tell " + predictor + " from cache-aware by mean TTFT"},
		{name: "runs that overlap", change: func(all []result) {
			all[2].simulated[0].TTFT.Mean, all[2].simulated[1].TTFT.Mean = 0.4, 1
		}, want: "the rate does not tell " + predictor + " from cache-aware by mean TTFT"},
		{name: "a rate at which all miss the SLO", change: func(all []result) {
			for i := range all {
				all[i].simulated[0].Good, all[i].live.Good = new(0.01*float64(i)), new(0.01*float64(i))
			}
		}, want: "the rate does not tell " + predictor + " from cache-aware by share of calls that miss the SLO"},
		{name: "within the margin", change: func(all []result) {
			all[4].simulated[0].TTFT.Mean, all[4].simulated[1].TTFT.Mean = 0.66, 0.66
		}, want: "the rate does not tell " + predictor + " from cache-aware by mean TTFT"},
	} {
		t.Run(c.name, func(t *testing.T) {
			all := sound()
			c.change(all)
			wrong := (&options{ranking: c.ranking}).judge(io.Discard, all)
			if c.want == "" && len(wrong) > 0 || c.want != "" && !strings.Contains(strings.Join(wrong, "\n"), c.want) {
				t.Errorf("wrong: %q, want %q", wrong, c.want)
			}
		})
	}
}

func swap(a, b *result) { a.live.TTFT, b.live.TTFT = b.live.TTFT, a.live.TTFT }

func TestRanks_ShowTies(t *testing.T) {
	var text strings.Builder
	measures[0].ranks(&text, sound())
	for _, want := range []string{
		"simulated:    predicted-ttft < cache-aware ≈ sticky-until-saturated < kv-cost < least-outstanding\n",
		"in real time: predicted-ttft < sticky-until-saturated < cache-aware < kv-cost < least-outstanding\n",
		": cache-aware and sticky-until-saturated\n",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%s\nhas no %q", text.String(), want)
		}
	}
}

func TestReadPredictions(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"msg":"serving"}
{"msg":"call","policy":"a","ttft_seconds":0.25,"predicted_ttft_seconds":0.125}
{"msg":"call","policy":"a","ttft_seconds":0.25,"predicted_ttft_seconds":0.375}
{"msg":"call","policy":"b","ttft_seconds":0.2}
`)
	p, err := readPredictions(file)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.ratios) != 2 || p.short != 1 || p.policies["a"] != 2 || p.policies["b"] != 1 || p.off(0.5) != 0.5 || p.within(0.4) != 0 || p.within(0.51) != 1 {
		t.Errorf("%+v", p)
	}
	write("{\"msg\":\"call\"}\nnot JSON\n")
	if _, err := readPredictions(file); err == nil || !strings.Contains(err.Error(), "log:2:") {
		t.Errorf("%v, want the line named", err)
	}
}
