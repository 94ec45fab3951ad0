package lab

import "fmt"

// specDecoding is article 7.4: the gap between streamed outputs and the time per token part
// when a step gives several tokens.
type specDecoding struct {
	step   float64
	tokens float64
	output int
	drafts int
}

func specDecodingLab() Lab {
	return Lab{
		Name: "spec-decoding", Title: "inter-token latency and time per token part", Section: "7.4",
		About: "A stream gives its first token, then a chunk a step, each with as many tokens as were accepted. ITL are the gaps between " +
			"streamed chunks; TPOT is the time after the first token over the tokens after the first. The mean number of tokens a step " +
			"is (1 − α^(γ+1))/(1 − α) for γ drafts that are accepted with probability α each (Leviathan, Kalman and Matias 2023).",
		Look: []string{
			"With two tokens a step the ITL stays at 40 ms and the TPOT halves to 20 ms: an SLO on ITL does not see what the user got.",
			"The same prompt and answer cost 40 ms a token where no draft is accepted and 9.8 ms where nine of ten are: text decides what a call costs.",
			"Turn `drafts` up to 16: at an acceptance of 0.9 a token takes 4.9 ms, at 0.4 it stays at 24. Longer drafts pay for predictable text alone.",
		},
		settings: func() experiment { return &specDecoding{step: 40, tokens: 2, output: 401, drafts: 4} },
	}
}

func (s *specDecoding) params() []Param {
	return []Param{
		number(&s.step, "step_ms", "time between two chunks, ms", 0.01, 1e5),
		number(&s.tokens, "tokens_a_step", "accepted tokens a step, mean", 1, 64),
		count(&s.output, "output_tokens", "length of the answer, tokens", 2, 1_000_000),
		count(&s.drafts, "drafts", "γ: tokens drafted a step, for the table by acceptance", 1, 64),
	}
}

func (s *specDecoding) run(int) Findings {
	latencies := []Column{{Name: "chunks"}, {Name: "ITL", Unit: "ms"}, {Name: "TPOT", Unit: "ms"}}
	streams := Table{Name: "streams", Title: fmt.Sprintf("a stream of %s tokens", decimal(float64(s.output), 0)),
		Columns: append([]Column{{Name: "tokens a step"}}, latencies...)}
	without := s.play(1)
	with := s.play(s.tokens)
	for _, st := range []stream{without, with} {
		streams.Rows = append(streams.Rows, append([]Cell{Number(st.tokens, 2)}, st.cells()...))
	}

	content := Table{Name: "by-acceptance", Title: fmt.Sprintf("the same prompt and answer by how predictable the text is, %d drafts a step", s.drafts),
		Columns: append([]Column{{Name: "acceptance α"}, {Name: "tokens a step"}}, latencies...)}
	var slowest, fastest stream
	for _, percent := range []int{0, 20, 40, 60, 80, 90} {
		alpha := float64(percent) / 100
		st := s.play(accepted(alpha, s.drafts))
		if percent == 0 {
			slowest = st
		}
		fastest = st
		content.Rows = append(content.Rows, append([]Cell{Number(alpha, 1), Number(st.tokens, 2)}, st.cells()...))
	}
	return Findings{Tables: []Table{streams, content}, Plots: []Plot{s.plot()}, Verdicts: []Verdict{
		equals("7.4", "with speculation ITL and TPOT part: 40 ms and 20 ms",
			figure{40, with.itl, 0, " ms"}, figure{20, with.tpot, 0, " ms"}),
		holds("7.4", "an SLO on ITL improves less than the experience does", without.itl-with.itl < without.tpot-with.tpot,
			fmt.Sprintf("ITL improves by %s ms, TPOT by %s ms", decimal(without.itl-with.itl, 0), decimal(without.tpot-with.tpot, 0))),
		holds("7.4", "the cost of the same call varies with its content", slowest.tpot > 2*fastest.tpot,
			fmt.Sprintf("from %s ms a token where no draft is accepted to %s ms at α = 0.9", decimal(slowest.tpot, 1), decimal(fastest.tpot, 1))),
	}}
}

// plot draws both latencies by acceptance.
func (s *specDecoding) plot() Plot {
	p := Plot{Name: "acceptance", Title: fmt.Sprintf("ITL and TPOT by acceptance, %d drafts a step", s.drafts), Kind: Lines, X: Axis{Label: "acceptance α", Most: 1}, Y: Axis{Label: "time", Unit: "ms"},
		Series: []Series{{Name: "ITL"}, {Name: "TPOT"}}}
	for percent := 0; percent <= 95; percent += 5 {
		alpha := float64(percent) / 100
		st := s.play(accepted(alpha, s.drafts))
		for i, y := range []float64{st.itl, st.tpot} {
			p.Series[i].X, p.Series[i].Y = append(p.Series[i].X, alpha), append(p.Series[i].Y, y)
		}
	}
	last := len(p.Series[0].Y) - 1
	p.Says = fmt.Sprintf("From an acceptance of 0 to one of 0.95 ITL goes from %s to %s ms, TPOT from %s to %s ms.", decimal(p.Series[0].Y[0], 1), decimal(p.Series[0].Y[last], 1),
		decimal(p.Series[1].Y[0], 1), decimal(p.Series[1].Y[last], 1))
	return p
}

// stream is what is measured of one.
type stream struct {
	tokens float64 // a step
	chunks int     // after the first token
	itl    float64 // mean gap between chunks, ms
	tpot   float64 // ms
}

// play streams an answer chunk by chunk, carrying what is left of a fractional token to the
// next step, and measures it. The last chunk has what is left over.
func (s *specDecoding) play(tokens float64) stream {
	st := stream{tokens: tokens}
	rest, ready, now := s.output-1, 0.0, 0.0 // after the first token, at 0
	var gaps float64
	for rest > 0 {
		now += s.step
		gaps += s.step
		ready += tokens
		n := min(int(ready), rest)
		ready -= float64(n)
		rest -= n
		st.chunks++
	}
	st.itl = gaps / float64(st.chunks)
	st.tpot = now / float64(s.output-1)
	return st
}

func (st stream) cells() []Cell {
	return []Cell{Number(float64(st.chunks), 0), Number(st.itl, 1), Number(st.tpot, 1)}
}

// accepted returns the mean number of tokens a step: 1 + α + … + α^γ.
func accepted(alpha float64, drafts int) float64 {
	sum, power := 0.0, 1.0
	for range drafts + 1 {
		sum += power
		power *= alpha
	}
	return sum
}
