package discovery

import (
	"context"
	"fmt"
	"math"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"
)

// service returns a source of SRV records and their targets in fake time.
func service(d DNS, srv func(at time.Duration) ([]*net.SRV, error), ip func(ctx context.Context, host string, at time.Duration) ([]netip.Addr, error)) func(time.Time) (Source, error) {
	return func(start time.Time) (Source, error) {
		d.URL, d.Service = "https://engines", "_http._tcp"
		d.Resolver = fake{
			srv: func(_ context.Context, name string) ([]*net.SRV, error) {
				if name != "_http._tcp.engines" {
					return nil, noName
				}
				return srv(time.Since(start))
			},
			ip: func(ctx context.Context, _, host string) ([]netip.Addr, error) {
				return ip(ctx, host, time.Since(start))
			},
		}
		return NewDNS(d)
	}
}

// gpus has the target gpu-N at 10.0.0.N.
func gpus(_ context.Context, host string, _ time.Duration) ([]netip.Addr, error) {
	var n byte
	if _, err := fmt.Sscanf(host, "gpu-%d.", &n); err != nil {
		return nil, noName
	}
	return []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, n})}, nil
}

func gpu(n, priority, weight, port int) *net.SRV {
	return &net.SRV{Target: fmt.Sprintf("gpu-%d.", n), Port: uint16(port), Priority: uint16(priority), Weight: uint16(weight)}
}

func TestSRV_UsesTheLowestPriorityWithItsWeights(t *testing.T) {
	w := watchFor(t, second, service(DNS{}, func(time.Duration) ([]*net.SRV, error) {
		return []*net.SRV{
			gpu(9, 20, 100, 8000),
			gpu(2, 10, 30, 8001), gpu(2, 10, 30, 8001),
			gpu(1, 10, 60, 8000),
			gpu(1, 10, 0, 9000),
			gpu(4, 10, 10, 0), // no port
		}, nil
	}, gpus))[0]
	wantError(t, w.err, "")
	wantURLs(t, w, "https://10.0.0.1:8000", "https://10.0.0.1:9000", "https://10.0.0.2:8001")
	for i, want := range []float64{1, 1.0 / 60, 0.5} {
		if e := w.endpoints[i]; math.Abs(e.Weight-want) > 1e-12 || e.Host != "engines" {
			t.Errorf("%+v, want weight %v", e, want)
		}
	}
}

func TestSRV_WhenATargetHasSeveralAddresses_SharesItsWeight(t *testing.T) {
	w := watchFor(t, second, service(DNS{}, func(time.Duration) ([]*net.SRV, error) {
		return []*net.SRV{{Target: "gpu-1.", Port: 8000}}, nil
	}, func(context.Context, string, time.Duration) ([]netip.Addr, error) {
		return addrs("10.0.0.1", "fd00::1"), nil
	}))[0]
	wantURLs(t, w, "https://10.0.0.1:8000", "https://[fd00::1]:8000")
	if w.endpoints[0].Weight != 0.5 || w.endpoints[1].Weight != 0.5 {
		t.Errorf("%+v", w.endpoints)
	}
}

// TestF38_WhenOneTargetFails_TheOthersCount has gpu-1, which was known, and gpu-3, which
// never was, fail while gpu-2 moves.
func TestF38_WhenOneTargetFails_TheOthersCount(t *testing.T) {
	all := watchFor(t, 11*second, service(DNS{}, func(at time.Duration) ([]*net.SRV, error) {
		switch {
		case at == 0:
			return []*net.SRV{gpu(1, 0, 1, 8000), gpu(2, 0, 1, 8000)}, nil
		case at == 5*second:
			return []*net.SRV{gpu(1, 0, 1, 8000), gpu(2, 0, 1, 8000), gpu(3, 0, 1, 8000)}, nil
		default:
			return nil, servFail
		}
	}, func(ctx context.Context, host string, at time.Duration) ([]netip.Addr, error) {
		switch {
		case at == 0:
			return gpus(ctx, host, at)
		case host == "gpu-2.":
			return addrs("10.0.1.2"), nil
		case host == "gpu-3.":
			return nil, timedOut
		default:
			return nil, noName
		}
	}))
	wantURLs(t, all[0], "https://10.0.0.1:8000", "https://10.0.0.2:8000")
	wantURLs(t, all[1], "https://10.0.0.1:8000", "https://10.0.1.2:8000")
	wantError(t, all[1].err, "2 of 3 targets: lookup of gpu-1.: the DNS has no such name")
	wantURLs(t, all[2], "https://10.0.0.1:8000", "https://10.0.1.2:8000")
	wantError(t, all[2].err, "lookup of _http._tcp.engines: server misbehaving")
}

func TestSRV_WhenTheServiceIsGone_KeepsAndThenDrops(t *testing.T) {
	for _, c := range []struct {
		name    string
		records []*net.SRV
		err     error
	}{
		{"no such name", nil, noName},
		{"no records", nil, nil},
		{"decidedly not available", []*net.SRV{{Target: ".", Port: 80}}, nil},
	} {
		all := watchFor(t, 16*second, service(DNS{Keep: 10 * second}, func(at time.Duration) ([]*net.SRV, error) {
			if at == 0 {
				return []*net.SRV{gpu(1, 0, 0, 8000)}, nil
			}
			return c.records, c.err
		}, gpus))
		wantURLs(t, atTime(t, all, 10*second), "https://10.0.0.1:8000")
		last := atTime(t, all, 15*second)
		if last.endpoints == nil || len(last.endpoints) > 0 {
			t.Errorf("%s: %v, want none", c.name, last.endpoints)
		}
		wantError(t, last.err, "so that none is left")
	}
}

func TestSRV_WhenSomeRecordsAreMalformed_UsesTheOthers(t *testing.T) {
	w := watchFor(t, second, service(DNS{}, func(time.Duration) ([]*net.SRV, error) {
		return []*net.SRV{gpu(1, 0, 0, 8000)}, &net.DNSError{Err: "DNS response contained records which contain invalid names"}
	}, gpus))[0]
	wantURLs(t, w, "https://10.0.0.1:8000")
	wantError(t, w.err, "invalid names")
}

func TestSRV_WhenNoTargetIsKnown_SaysSo(t *testing.T) {
	w := watchFor(t, second, service(DNS{}, func(time.Duration) ([]*net.SRV, error) {
		return []*net.SRV{gpu(1, 0, 0, 8000)}, nil
	}, func(context.Context, string, time.Duration) ([]netip.Addr, error) { return nil, timedOut }))[0]
	if w.endpoints != nil {
		t.Errorf("%v, want unknown", w.endpoints)
	}
	wantError(t, w.err, "1 of 1 targets: lookup of gpu-1.: no answer in time")
}

// TestSRV_WhenTargetsHang_IsBounded has 600 targets: 512 are looked up, eight at a time,
// and all together for no longer than one look may take.
func TestSRV_WhenTargetsHang_IsBounded(t *testing.T) {
	var now, most atomic.Int64
	all := watchFor(t, 14*second, service(DNS{}, func(time.Duration) ([]*net.SRV, error) {
		var records []*net.SRV
		for i := range 600 {
			records = append(records, &net.SRV{Target: fmt.Sprintf("t%d.", i), Port: 80})
		}
		return records, nil
	}, func(ctx context.Context, _ string, _ time.Duration) ([]netip.Addr, error) {
		if n := now.Add(1); n > most.Load() {
			most.Store(n)
		}
		defer now.Add(-1)
		<-ctx.Done()
		return nil, ctx.Err()
	}))
	if len(all) != 1 || all[0].at != 10*second {
		t.Fatalf("%d looks, the first ended at %v; want one that ends at 10s", len(all), all[0].at)
	}
	if most.Load() != lookupsAtOnce {
		t.Errorf("%d lookups at once, want %d", most.Load(), lookupsAtOnce)
	}
	wantError(t, all[0].err, "has 600 records, of which 512 are used")
	wantError(t, all[0].err, "512 of 512 targets")
}
