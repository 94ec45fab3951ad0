package lab

import (
	"fmt"

	"kvasir/internal/queueing"
)

// prefillSaving is the arithmetic of article 5.3: what a cached prefix saves.
type prefillSaving struct {
	hidden float64
	factor float64
	tokens float64
}

func prefillSavingLab() Lab {
	return Lab{
		Name: "prefill-saving", Title: "what a cached prefix saves of a prefill", Section: "5.3",
		About: "Of an n-token prompt the first m tokens are cached. What is linear in tokens saves m/n, attention (m/n)², and attention's " +
			"share of a prefill is n/(n + c·d), so the whole saves (1−a)·m/n + a·(m/n)².",
		settings: func() experiment { return &prefillSaving{hidden: 4096, factor: 12, tokens: 4000} },
	}
}

func (p *prefillSaving) params() []Param {
	return []Param{
		number(&p.hidden, "hidden", "hidden dimension d of the model", 64, 1e6),
		number(&p.factor, "block_factor", "c: parameters of a block in units of d²", 1, 100),
		number(&p.tokens, "prompt_tokens", "prompt length n of the table by cached part, tokens", 1, 1e7),
	}
}

func (p *prefillSaving) run(int) Findings {
	parts := Table{Name: "by-cached-part", Title: "saving by cached part, at " + decimal(p.tokens, 0) + " tokens",
		Columns: []Column{{Name: "m/n"}, {Name: "attention alone, (m/n)²"}, {Name: "whole"}, {Name: "linear alone, m/n"}}}
	a := queueing.AttentionShare(p.tokens, p.hidden, p.factor)
	between := true
	for _, cached := range []float64{0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1} {
		saving := queueing.PrefillSaving(cached, a)
		between = between && cached*cached <= saving && saving <= cached
		parts.Rows = append(parts.Rows, []Cell{Number(cached, 2), Number(cached*cached, 4), Number(saving, 4), Number(cached, 4)})
	}

	const reused = 0.95 // article 5.3: ordinary by step 10 of an agent
	lengths := Table{Name: "by-length", Title: "attention's share by prompt length, and the saving at 95 % cached",
		Columns: []Column{{Name: "n", Unit: "tokens"}, {Name: "attention's share"}, {Name: "saving"}, {Name: "below m/n by"}}}
	half := p.factor * p.hidden // n = c·d, where n/(n + c·d) is a half
	worst := 0.0
	for _, n := range []float64{500, 1000, 2000, 4000, 8000, 16_000, 32_000, half, 128_000} {
		share := queueing.AttentionShare(n, p.hidden, p.factor)
		saving := queueing.PrefillSaving(reused, share)
		if n <= 16_000 {
			worst = max(worst, reused-saving)
		}
		lengths.Rows = append(lengths.Rows, []Cell{Number(n, 0), Number(share, 3), Number(saving, 4), Number(reused-saving, 4)})
	}

	return Findings{Tables: []Table{parts, lengths}, Verdicts: []Verdict{
		about("5.3", "at d = 4096 attention does not reach half of a prefill until nearly 50,000 tokens", 50_000, half, 0, " tokens"),
		holds("5.3", "the saving lies between (m/n)² and m/n", between, "true of every cached part in the table"),
		holds("5.3", "for ordinary prompts the saving may be taken for m/n", worst < 0.02,
			fmt.Sprintf("up to 16,000 tokens it is at most %s below m/n = 0.95", decimal(worst, 4))),
	}}
}
