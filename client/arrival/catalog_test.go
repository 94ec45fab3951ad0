package arrival

import (
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"kvasir/internal/spec"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]Process{
		"constant:rate=3":                                 &Constant{3},
		"poisson:rate=0.5,exactly=100":                    &Poisson{0.5, 100},
		"gamma:rate=3":                                    &Gamma{3, 1, 0},
		"gamma:burstiness=inf,rate=3":                     &Gamma{3, math.Inf(1), 0},
		"on-off:on-rate=9,off=1m":                         &OnOff{9, 0, 10 * time.Second, time.Minute, 1},
		"ramp:start=1,end=20,over=5m,strategy=linear":     &Ramp{1, 20, 5 * time.Minute, Linear, 1},
		"surge:rate=2,factor=4,for=30s":                   &Surge{2, 4, time.Minute, 30 * time.Second, 1},
		"diurnal:rate=2,amplitude=1,period=1h,phase=0.75": &Diurnal{2, 1, time.Hour, 0.75, 1},
	} {
		if p, err := Parse(text); err != nil || !reflect.DeepEqual(p, want) {
			t.Errorf("%s: %+v, %v", text, p, err)
		}
	}
}

func TestParse_NamesEveryMistake(t *testing.T) {
	for text, want := range map[string]string{
		"":                                `"" is not an arrival process; allowed: constant, poisson, gamma, on-off, ramp, surge, diurnal`,
		"list:at=1":                       `"list" is not an arrival process; allowed: constant, poisson, gamma, on-off, ramp, surge, diurnal`,
		"poisson":                         "poisson: rate is 0; allowed: 1e-09 to 1e+09 sessions a second",
		"gamma:rate=2,cv=3":               `gamma: "cv" is no key; allowed: rate, burstiness, exactly`,
		"gamma:rate=x,burstiness=0":       `gamma: rate is "x"; allowed: a number`,
		"gamma:rate=1,burstiness=0":       "gamma: burstiness is 0; allowed: 0.001 or more, or inf",
		"poisson:rate=1,exactly=10000001": "poisson: exactly is 10000001; allowed: 0 to 10000000",
		"ramp:end=5,strategy=steep":       `ramp: strategy is "steep"; allowed: linear or exponential`,
	} {
		if p, err := Parse(text); err == nil || err.Error() != want {
			t.Errorf("%q: %+v, %v\nwant %s", text, p, err, want)
		}
	}
}

func TestCatalog_IsDescribed(t *testing.T) {
	help := Catalog().Describe()
	for _, e := range Catalog().Entries {
		if !strings.Contains(help, "  "+e.Name+"\n") {
			t.Errorf("%s is not described", e.Name)
		}
	}
	if strings.Count(help, "rate=0 ") != 5+2 || !strings.Contains(help, "amplitude=0.5") { // on-off has two
		t.Errorf("described as\n%s", help)
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"constant:rate=3", "gamma:rate=1e9,burstiness=0.001", "on-off:on-rate=1,on=1us,off=87840h", "ramp:start=0,end=1,over=1us",
		"diurnal:rate=1e-9,amplitude=1,phase=1", "poisson:rate=NaN", "gamma:rate=1,exactly=10001",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := Parse(text)
		if err != nil {
			return
		}
		name, _, _ := spec.Split(text)
		e, _ := Catalog().Lookup(name)
		if again, err := Parse(e.Format(p)); err != nil || !reflect.DeepEqual(again, p) {
			t.Fatalf("%q is written as %q and read as %+v, %v", text, e.Format(p), again, err)
		}
		last := time.Duration(-1)
		for _, at := range take(p.Instants(1), 3) {
			if at <= last {
				t.Fatalf("%q: %v after %v", text, at, last)
			}
			last = at
		}
	})
}
