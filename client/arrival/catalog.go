package arrival

import (
	"time"

	"kvasir/internal/spec"
)

// Catalog lists the processes that a command line can name.
func Catalog() spec.Catalog[Process] {
	return spec.Catalog[Process]{Kind: "an arrival process", Entries: []spec.Entry[Process]{
		{
			Name: "constant", Doc: "one session every 1/rate", Source: "vLLM's --burstiness inf",
			Make: func() Process { return &Constant{} },
		},
		{
			Name: "poisson", Doc: "sessions that know nothing of each other", Source: "article 1.2 and 15; vLLM's --burstiness 1",
			Make: func() Process { return &Poisson{} },
		},
		{
			Name: "gamma", Doc: "independent gaps that are more even than a Poisson process's, or burstier", Source: "article 15; vLLM's --burstiness",
			Make: func() Process { return &Gamma{Burstiness: 1} },
		},
		{
			Name: "on-off", Doc: "a rate that switches between two values at random", Source: "Fischer and Meier-Hellstern 1993",
			Make: func() Process { return &OnOff{On: 10 * time.Second, Off: 30 * time.Second, Burstiness: 1} },
		},
		{
			Name: "ramp", Doc: "a rate that climbs from one value to another", Source: "article 15; vLLM's --ramp-up-strategy, over time",
			Make: func() Process { return &Ramp{Over: time.Minute, Strategy: Linear, Burstiness: 1} },
		},
		{
			Name: "surge", Doc: "a steady rate that is a multiple of itself for a while", Source: "article 9: overload with a beginning and an end",
			Make: func() Process {
				return &Surge{Factor: 3, From: time.Minute, For: time.Minute, Burstiness: 1}
			},
		},
		{
			Name: "diurnal", Doc: "a rate that swings like a day", Source: "a sinusoid",
			Make: func() Process {
				return &Diurnal{Amplitude: 0.5, Period: 24 * time.Hour, Burstiness: 1}
			},
		},
	}}
}

// Parse returns the process that a text such as gamma:rate=3,burstiness=0.5 stands for. The
// error names every key that is wrong, its value and what is allowed.
func Parse(text string) (Process, error) {
	e, p, err := Catalog().Parse(text)
	if err != nil {
		return nil, err
	}
	if err := p.Validate(); err != nil {
		return nil, spec.Prefix(e.Name, err)
	}
	return p, nil
}
