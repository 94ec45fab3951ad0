package arrival

import (
	"fmt"
	"iter"
	"time"

	"kvasir/internal/draw"
	"kvasir/internal/seed"
)

// OnOff is a rate that switches between two values and keeps each for an exponentially
// distributed time: a Markov-modulated Poisson process of two states where the burstiness
// is 1 (Fischer and Meier-Hellstern, 1993), and with OffRate 0 an interrupted one. Its
// average rate is
//
//	(OnRate·On + OffRate·Off) / (On + Off)
//
// from the start, because the state in which it starts is drawn in that proportion.
type OnOff struct {
	OnRate     float64       `spec:"on-rate" doc:"sessions a second while on; it has no default"`
	OffRate    float64       `spec:"off-rate" doc:"sessions a second while off; 0: none come"`
	On         time.Duration `spec:"on" doc:"mean time that it stays on"`
	Off        time.Duration `spec:"off" doc:"mean time that it stays off"`
	Burstiness float64       `spec:"burstiness" doc:"shape of the gaps, whose CV is 1/√burstiness while the rate stays: 1 Poisson, below bursty, inf even"`
}

// Validate reports every field outside its range.
func (o OnOff) Validate() error {
	var off error
	if o.OffRate != 0 {
		off = rate("off-rate", o.OffRate)
	}
	err := join(rate("on-rate", o.OnRate), off, span("on", o.On), span("off", o.Off), burstiness(o.Burstiness))
	if cycle := o.cycle(); err == nil && cycle < minCycle {
		err = fmt.Errorf("on-rate · on + off-rate · off is %.3g sessions; allowed: %v or more", cycle, minCycle)
	}
	return err
}

// minCycle bounds how often it may switch until a session comes.
const minCycle = 0.001

// cycle returns how many sessions are expected while it is on once and off once.
func (o OnOff) cycle() float64 {
	return float64(o.OnRate*o.On.Seconds()) + float64(o.OffRate*o.Off.Seconds())
}

// Rate returns the average rate, in sessions a second.
func (o OnOff) Rate() float64 {
	return o.cycle() / (o.On.Seconds() + o.Off.Seconds())
}

// Instants yields the process.
func (o OnOff) Instants(root uint64) iter.Seq[time.Duration] {
	return run(root, o.Burstiness, 0, func() clock {
		s := switching{OnOff: o, holds: seed.New(root, seed.Arrival, 1, 0)}
		on, off := o.On.Seconds(), o.Off.Seconds()
		s.on = s.holds.Float64()*(on+off) < on
		s.hold()
		return s.when
	})
}

// switching is an OnOff under way.
type switching struct {
	OnOff
	holds  seed.Rand
	on     bool
	rate   float64
	begin  float64 // of the state it is in, in seconds
	length float64 // of that state
	before float64 // arrivals expected before it began
}

// hold draws how long the state that it is in lasts.
func (s *switching) hold() {
	mean := s.Off
	if s.rate = s.OffRate; s.on {
		s.rate, mean = s.OnRate, s.On
	}
	s.length = mean.Seconds() * draw.Exponential(&s.holds)
}

func (s *switching) when(n float64) float64 {
	for {
		expected := float64(s.rate * s.length)
		if n-s.before < expected {
			return s.begin + (n-s.before)/s.rate
		}
		s.before += expected
		s.begin += s.length
		if s.begin > horizon {
			return s.begin
		}
		s.on = !s.on
		s.hold()
	}
}
