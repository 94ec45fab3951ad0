package proxy_test

import (
	"context"
	"log/slog"
	"sync"

	dto "github.com/prometheus/client_model/go"
)

// recorder keeps the log lines of calls: the usage records.
type recorder struct {
	mu    sync.Mutex
	calls []record
	other []string
	lines []record // parallel to other
}

type record map[string]slog.Value

func (c record) int(key string) int       { return int(c.get(key).Int64()) }
func (c record) string(key string) string { return c.get(key).String() }
func (c record) has(key string) bool      { _, ok := c[key]; return ok }

func (c record) get(key string) slog.Value {
	if v, ok := c[key]; ok {
		return v
	}
	if key == "attempts" {
		return slog.Int64Value(0)
	}
	return slog.StringValue("")
}

func (r *recorder) Enabled(context.Context, slog.Level) bool { return true }
func (r *recorder) WithAttrs([]slog.Attr) slog.Handler       { return r }
func (r *recorder) WithGroup(string) slog.Handler            { return r }

func (r *recorder) Handle(_ context.Context, line slog.Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if line.Message != "call" {
		r.other = append(r.other, line.Message)
		c := record{}
		line.Attrs(func(a slog.Attr) bool { c[a.Key] = a.Value; return true })
		r.lines = append(r.lines, c)
		return nil
	}
	c := record{}
	line.Attrs(func(a slog.Attr) bool { c[a.Key] = a.Value; return true })
	r.calls = append(r.calls, c)
	return nil
}

func (r *recorder) all() []record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]record(nil), r.calls...)
}

// about returns what the log lines with the message say, of those that are no call's.
func (r *recorder) about(message string) []record {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []record
	for i, m := range r.other {
		if m == message {
			out = append(out, r.lines[i])
		}
	}
	return out
}

// said returns the log lines that are no call's.
func (r *recorder) said() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.other...)
}

// record returns the record of the only call, once it has ended.
func (r *rig) record() record {
	r.t.Helper()
	r.settle()
	all := r.records.all()
	if len(all) != 1 {
		r.t.Fatalf("%d records, want 1: %v", len(all), all)
	}
	return all[0]
}

func (r *rig) gather() []*dto.MetricFamily {
	r.t.Helper()
	fs, err := r.registry.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	return fs
}

// metric adds up the samples of a series that have all the labels, "name=value", once
// nothing is in flight.
func (r *rig) metric(name string, labels ...string) float64 {
	r.t.Helper()
	r.settle()
	total := 0.0
	for _, f := range r.gather() {
		if f.GetName() != name {
			continue
		}
	samples:
		for _, m := range f.GetMetric() {
			for _, want := range labels {
				found := false
				for _, l := range m.GetLabel() {
					found = found || l.GetName()+"="+l.GetValue() == want
				}
				if !found {
					continue samples
				}
			}
			total += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return total
}
