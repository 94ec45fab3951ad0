package lab

import "kvasir/internal/queueing"

// knee is the chart of article 1.2: how much utilization a wait leaves.
type knee struct {
	wait  float64
	heavy float64
}

func kneeLab() Lab {
	return Lab{
		Name: "knee", Title: "how much utilization variability costs", Section: "1.2",
		About: "The mean wait of an M/G/1 queue by the Pollaczek–Khinchine formula, W_q/E[S] = ρ/(1−ρ) · (1 + C_s²)/2, " +
			"read both ways: the wait at a utilization, and the utilization at a wait.",
		settings: func() experiment { return &knee{wait: 3, heavy: 4} },
	}
}

func (k *knee) params() []Param {
	return []Param{
		number(&k.wait, "wait", "mean wait that is accepted, in mean service times", 0.01, 1000),
		number(&k.heavy, "heavy_cs2", "squared coefficient of variation of the heavy tail's service times", 0, 1000),
	}
}

func (k *knee) run(int) Findings {
	curves := []struct {
		name    string
		cs2     float64
		article float64 // utilization at a wait of 3
	}{{"deterministic", 0, 0.86}, {"exponential", 1, 0.75}, {"heavy tail", k.heavy, 0.55}}

	at := Table{Name: "knee", Title: "utilization at which the mean wait is " + show(k.wait) + " service times",
		Columns: []Column{{Name: "service"}, {Name: "C_s²"}, {Name: "(1 + C_s²)/2"}, {Name: "ρ"}}}
	curve := Table{Name: "curve", Title: "mean wait in service times", Columns: []Column{{Name: "ρ"}}}
	var figures []figure
	var knees []float64
	for _, c := range curves {
		rho := queueing.Knee(k.wait, 1, c.cs2)
		knees = append(knees, rho)
		figures = append(figures, figure{c.article, rho, 2, ""})
		at.Rows = append(at.Rows, []Cell{Text(c.name), Number(c.cs2, 1), Number((1+c.cs2)/2, 2), Number(rho, 4)})
		curve.Columns = append(curve.Columns, Column{Name: c.name})
	}
	for percent := 5; percent <= 95; percent += 5 {
		rho := float64(percent) / 100
		row := []Cell{Number(rho, 2)}
		for _, c := range curves {
			row = append(row, Number(queueing.PollaczekKhinchine(rho, c.cs2), 2))
		}
		curve.Rows = append(curve.Rows, row)
	}

	const rho = 0.8 // the ratios are the same at every utilization
	deterministic := queueing.PollaczekKhinchine(rho, 0)
	exponential := queueing.PollaczekKhinchine(rho, 1)
	heavy := queueing.PollaczekKhinchine(rho, k.heavy)
	return Findings{Tables: []Table{at, curve}, Verdicts: []Verdict{
		equals("1.2", "three service times of wait are reached at ρ = 0.86, 0.75 and 0.55 for C_s² = 0, 1 and 4", figures...),
		equals("1.2", "at C_s² = 4 the queue is 2.5 times as deep as with exponential service, 5 times as with deterministic",
			figure{2.5, heavy / exponential, 1, ""}, figure{5, heavy / deterministic, 1, ""}),
		about("1.2", "the heavy tail costs about thirty points of utilization against deterministic service",
			30, 100*(knees[0]-knees[2]), 0, " points"),
	}}
}
