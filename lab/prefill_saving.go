package lab

import (
	"fmt"
	"math"

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
		Look: []string{
			"At 4,000 tokens attention is 7.5 % of a prefill, and three quarters cached save 0.736 of it: the saving may be taken for m/n.",
			"Turn `prompt_tokens` up to 49,152 and attention is half of it; three quarters cached then save 0.656. At 128,000 tokens they save 0.615.",
			"Turn `hidden` down to 1,024: the smaller the model, the sooner attention counts. Half is reached at 12,288 tokens.",
		},
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

	off, apart := p.counted()
	times := 1 / (1 - queueing.PrefillSaving(reused, queueing.AttentionShare(p.tokens, p.hidden, p.factor)))
	return Findings{Tables: []Table{parts, lengths}, Plots: p.plots(), Verdicts: []Verdict{
		holds("5.3", "attention's share of a prefill is n/(n + c·d)", off < 0.001,
			fmt.Sprintf("the formula is off by at most %s from the work counted token by token", decimal(off, 5))),
		holds("5.3", "attention saves (m/n)², what is linear in tokens m/n", apart < 0.001,
			fmt.Sprintf("the saving is off by at most %s from the work counted token by token", decimal(apart, 5))),
		holds("5.3", "where 95 % of a prompt is reused, prefill changes by an order of magnitude", times >= 10,
			fmt.Sprintf("%s times less of a prompt of %s tokens", decimal(times, 0), decimal(p.tokens, 0))),
		about("5.3", "at d = 4096 attention does not reach half of a prefill until nearly 50,000 tokens", 50_000, half, 0, " tokens"),
		holds("5.3", "the saving lies between (m/n)² and m/n", between, "true of every cached part in the table"),
		holds("5.3", "for ordinary prompts the saving may be taken for m/n", worst < 0.02,
			fmt.Sprintf("up to 16,000 tokens it is at most %s below m/n = 0.95", decimal(worst, 4))),
	}}
}

// counted sums the work of prompts token by token, c·d for what is linear and twice its position
// for attention, and returns by how much attention's share and the saving are off at most.
func (p *prefillSaving) counted() (share, saving float64) {
	for _, n := range []int{2000, 8000, 16_000} {
		var linear, attention, left float64
		cached := n * 3 / 4
		for i := range n {
			of := 2 * float64(i)
			linear, attention = linear+float64(p.factor*p.hidden), attention+of
			if i >= cached {
				left += float64(p.factor*p.hidden) + of
			}
		}
		whole := linear + attention
		a := queueing.AttentionShare(float64(n), p.hidden, p.factor)
		share = max(share, math.Abs(a-attention/whole))
		saving = max(saving, math.Abs(queueing.PrefillSaving(0.75, a)-(1-left/whole)))
	}
	return share, saving
}

func (p *prefillSaving) plots() []Plot {
	a := queueing.AttentionShare(p.tokens, p.hidden, p.factor)
	saving := Plot{Name: "saving", Title: "saving by cached part, at " + decimal(p.tokens, 0) + " tokens", Kind: Lines, X: Axis{Label: "m/n", Most: 1}, Y: Axis{Label: "saving", Most: 1},
		Series: []Series{{Name: "linear alone, m/n"}, {Name: "whole"}, {Name: "attention alone, (m/n)²"}}}
	for percent := 0; percent <= 100; percent += 2 {
		m := float64(percent) / 100
		for i, y := range []float64{m, queueing.PrefillSaving(m, a), float64(m * m)} {
			s := &saving.Series[i]
			s.X, s.Y = append(s.X, m), append(s.Y, y)
		}
	}
	saving.Says = fmt.Sprintf("Half of a prompt of %s tokens cached saves %s of its prefill, between the 0.25 of attention and the 0.5 of what is linear.",
		decimal(p.tokens, 0), decimal(queueing.PrefillSaving(0.5, a), 3))
	half := float64(p.factor * p.hidden)
	share := Plot{Name: "share", Title: "attention's share by prompt length", Kind: Lines, X: Axis{Label: "prompt", Unit: "tokens", Log: true}, Y: Axis{Label: "attention's share", Most: 1},
		Marks: []Mark{{"x", half, "half"}}, Series: []Series{{Name: "d = " + decimal(p.hidden, 0)}}}
	for n := 256.0; n <= 1<<20; n *= 1.25 {
		s := &share.Series[0]
		s.X, s.Y = append(s.X, n), append(s.Y, queueing.AttentionShare(n, p.hidden, p.factor))
	}
	share.Says = fmt.Sprintf("Attention is %s of a prefill of 4,000 tokens and half of one of %s.", decimal(queueing.AttentionShare(4000, p.hidden, p.factor), 3), decimal(half, 0))
	return []Plot{saving, share}
}
