package sim

import (
	"math"
	"reflect"

	"kvasir/internal/stats"
)

// Mean returns the means of several runs' summaries, and half the width of the 95 %
// confidence interval of each number: NaN where there is one run only.
func Mean(runs []Summary) (mean, half Summary) {
	mean.Unfinished, half.Unfinished = map[string]Number{}, map[string]Number{}
	for i := range runs {
		for why := range runs[i].Unfinished {
			mean.Unfinished[why], half.Unfinished[why] = 0, 0
		}
	}
	var values []reflect.Value
	for i := range runs {
		values = append(values, reflect.ValueOf(&runs[i]).Elem())
	}
	average(reflect.ValueOf(&mean).Elem(), reflect.ValueOf(&half).Elem(), values)
	mean.Classes, half.Classes = meanParts(runs, func(s *Summary) map[string]Summary { return s.Classes })
	mean.Tenants, half.Tenants = meanParts(runs, func(s *Summary) map[string]Summary { return s.Tenants })
	for why := range mean.Unfinished {
		var ns []float64
		for i := range runs {
			ns = append(ns, float64(runs[i].Unfinished[why]))
		}
		m, h := stats.Interval(ns)
		mean.Unfinished[why], half.Unfinished[why] = Number(m), Number(h)
	}
	return mean, half
}

// meanParts does Mean's work on the classes or tenants of the runs: each of those that one of
// them has, over the runs that have it. It returns nil where there are none.
func meanParts(runs []Summary, of func(*Summary) map[string]Summary) (mean, half map[string]Summary) {
	parts := map[string][]Summary{}
	for i := range runs {
		for name, s := range of(&runs[i]) {
			parts[name] = append(parts[name], s)
		}
	}
	for name, all := range parts {
		if mean == nil {
			mean, half = map[string]Summary{}, map[string]Summary{}
		}
		mean[name], half[name] = Mean(all)
	}
	return mean, half
}

// average does Mean's work on the numbers of a struct and of those within it.
func average(mean, half reflect.Value, runs []reflect.Value) {
	for f := range mean.NumField() {
		of := make([]reflect.Value, len(runs))
		for i := range runs {
			of[i] = runs[i].Field(f)
		}
		switch mean.Field(f).Kind() {
		case reflect.Struct:
			average(mean.Field(f), half.Field(f), of)
		case reflect.Float64:
			var known []float64
			for _, v := range of {
				if x := v.Float(); !math.IsNaN(x) {
					known = append(known, x)
				}
			}
			m, h := stats.Interval(known)
			mean.Field(f).SetFloat(m)
			half.Field(f).SetFloat(h)
		}
	}
}
