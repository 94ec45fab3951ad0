package discovery

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

const second = time.Second

// changing returns a source of http://engines:8000 whose answer depends on the time.
func changing(d DNS, answer func(ctx context.Context, at time.Duration) ([]netip.Addr, error)) func(time.Time) (Source, error) {
	return func(start time.Time) (Source, error) {
		if d.URL == "" {
			d.URL = "http://engines:8000"
		}
		d.Resolver = fake{ip: func(ctx context.Context, _, host string) ([]netip.Addr, error) {
			if host != "engines" {
				return nil, noName
			}
			return answer(ctx, time.Since(start))
		}}
		return NewDNS(d)
	}
}

func TestF38_WhenTheRecordChanges_TheNextLookHasIt(t *testing.T) {
	all := watchFor(t, 20*second, changing(DNS{Phase: 2 * second}, func(_ context.Context, at time.Duration) ([]netip.Addr, error) {
		if at < 9*second {
			return addrs("10.0.0.1"), nil
		}
		return addrs("10.0.0.2"), nil
	}))
	var at []time.Duration
	for _, w := range all {
		at = append(at, w.at)
	}
	if want := []time.Duration{0, 2 * second, 7 * second, 12 * second, 17 * second}; !slices.Equal(at, want) {
		t.Errorf("looked at %v, want %v", at, want)
	}
	wantURLs(t, atTime(t, all, 11*second), "http://10.0.0.1:8000")
	wantURLs(t, atTime(t, all, 12*second), "http://10.0.0.2:8000")
	if e := all[0].endpoints[0]; e != (Endpoint{"http://10.0.0.1:8000", "10.0.0.1:8000", 1, "engines"}) {
		t.Errorf("%+v", e)
	}
}

func TestF38_WhenTheNameIsGone_KeepsTheListForAWhile(t *testing.T) {
	all := watchFor(t, 60*second, changing(DNS{Keep: 20 * second}, func(_ context.Context, at time.Duration) ([]netip.Addr, error) {
		if at == 0 || at == 10*second || at == 55*second {
			return addrs("10.0.0.1"), nil
		}
		return nil, noName
	}))
	for _, c := range []struct {
		at   time.Duration
		want []string
		err  string
	}{
		{5 * second, []string{"http://10.0.0.1:8000"}, "no such name"},
		{10 * second, []string{"http://10.0.0.1:8000"}, ""},
		{30 * second, []string{"http://10.0.0.1:8000"}, "no such name"}, // 15s after the first such answer
		{35 * second, nil, "so that none is left"},
		{50 * second, nil, "so that none is left"},
		{55 * second, []string{"http://10.0.0.1:8000"}, ""},
	} {
		w := atTime(t, all, c.at)
		wantURLs(t, w, c.want...)
		wantError(t, w.err, c.err)
		if w.endpoints == nil {
			t.Errorf("at %v: the list is unknown, want a list", c.at)
		}
	}
}

func TestF38_WhenTheDNSCanNotSay_KeepsTheListForEver(t *testing.T) {
	for _, failure := range []error{servFail, timedOut, context.DeadlineExceeded} {
		all := watchFor(t, time.Hour, changing(DNS{}, func(_ context.Context, at time.Duration) ([]netip.Addr, error) {
			switch {
			case at == 0:
				return addrs("10.0.0.1"), nil
			case at < 8*time.Minute && at%(2*time.Minute) != 0:
				return nil, noName // never for Keep without a break
			default:
				return nil, failure
			}
		}))
		for _, w := range all {
			wantURLs(t, w, "http://10.0.0.1:8000")
			if (w.err == nil) != (w.at == 0) {
				t.Errorf("at %v: error %v", w.at, w.err)
			}
		}
	}
}

func TestF38_WhenTheResolverHangs_GivesUpAndLooksAgain(t *testing.T) {
	all := watchFor(t, 42*second, changing(DNS{Timeout: 8 * second}, func(ctx context.Context, at time.Duration) ([]netip.Addr, error) {
		if at == 0 {
			return addrs("10.0.0.1"), nil
		}
		<-ctx.Done()
		return nil, ctx.Err()
	}))
	var at []time.Duration
	for _, w := range all {
		at = append(at, w.at)
		wantURLs(t, w, "http://10.0.0.1:8000")
	}
	// Looks begin at 5s, 15s, 25s and 35s: each beat that falls into a look is skipped,
	// and the last is cut off by the end.
	if want := []time.Duration{0, 13 * second, 23 * second, 33 * second}; !slices.Equal(at, want) {
		t.Errorf("told at %v, want %v", at, want)
	}
	wantError(t, all[1].err, "lookup of engines: no answer in time")
}

func TestF38_WhenThereAreManyAddresses_SortsAndBoundsThem(t *testing.T) {
	many := func(context.Context, time.Duration) ([]netip.Addr, error) {
		var list []netip.Addr
		for i := range 600 {
			i = 599 - i
			list = append(list, netip.AddrFrom4([4]byte{10, 0, byte(i / 256), byte(i % 256)}))
		}
		return append(list, list[:50]...), nil
	}
	w := watchFor(t, second, changing(DNS{}, many))[0]
	if len(w.endpoints) != Most || w.endpoints[0].URL != "http://10.0.0.0:8000" || w.endpoints[Most-1].URL != "http://10.0.1.255:8000" {
		t.Errorf("%d endpoints", len(w.endpoints))
	}
	wantError(t, w.err, "engines has 600 addresses, of which 512 are used")
	w = watchFor(t, second, changing(DNS{Most: 600}, many))[0]
	if len(w.endpoints) != 600 || w.err != nil {
		t.Errorf("%d endpoints, %v", len(w.endpoints), w.err)
	}
}

func TestF38_WhenThereAreOnlyIPv6Addresses_BracketsThem(t *testing.T) {
	all := watchFor(t, second, changing(DNS{URL: "https://engines/base"}, func(context.Context, time.Duration) ([]netip.Addr, error) {
		return addrs("fd00::2", "fd00::1%eth0", "::ffff:10.0.0.1", "::", "0.0.0.0", "224.0.0.1"), nil
	}))
	wantURLs(t, all[0], "https://10.0.0.1:443/base", "https://[fd00::1]:443/base", "https://[fd00::2]:443/base")
	for _, e := range all[0].endpoints {
		if again, err := e.Normal(); err != nil || again != e {
			t.Errorf("%+v is not normal: %+v %v", e, again, err)
		}
	}
}

func TestDNS_WhenNoAddressCanBeCalled_KeepsTheList(t *testing.T) {
	all := watchFor(t, 6*second, changing(DNS{}, func(_ context.Context, at time.Duration) ([]netip.Addr, error) {
		if at == 0 {
			return addrs("10.0.0.1"), nil
		}
		return addrs("0.0.0.0", "::"), nil
	}))
	wantURLs(t, all[1], "http://10.0.0.1:8000")
	wantError(t, all[1].err, "none of its 2 addresses can be called")
}

func TestDNS_WhenNothingWasEverSaid_SaysSo(t *testing.T) {
	all := watchFor(t, 11*second, changing(DNS{Keep: 10 * second}, func(context.Context, time.Duration) ([]netip.Addr, error) {
		return nil, noName
	}))
	if all[0].endpoints != nil || all[1].endpoints != nil {
		t.Errorf("%v, want unknown", all[:2])
	}
	if all[2].endpoints == nil || len(all[2].endpoints) > 0 {
		t.Errorf("%v, want none", all[2])
	}
}

func TestDNS_WhenAskedForOneFamily_AsksForIt(t *testing.T) {
	for network, want := range map[string]string{"": "ip", "ip": "ip", "ip4": "ip4", "ip6": "ip6"} {
		watchFor(t, second, func(time.Time) (Source, error) {
			return NewDNS(DNS{URL: "http://engines.", Network: network, Resolver: fake{ip: func(_ context.Context, asked, host string) ([]netip.Addr, error) {
				if asked != want || host != "engines." {
					t.Errorf("asked for %s of %s, want %s of engines.", asked, host, want)
				}
				return addrs("10.0.0.1"), nil
			}}})
		})
	}
}

func TestDNS_WhenANameEndsInADot_ItIsNotCalledByIt(t *testing.T) {
	w := watchFor(t, second, func(time.Time) (Source, error) {
		return NewDNS(DNS{URL: "https://Engines.Prod.", Resolver: fake{ip: func(context.Context, string, string) ([]netip.Addr, error) {
			return addrs("10.0.0.1"), nil
		}}})
	})[0]
	if w.endpoints[0].Host != "engines.prod" {
		t.Errorf("host %q", w.endpoints[0].Host)
	}
}

func TestNewDNS_WhenAFieldIsWrong_NamesIt(t *testing.T) {
	for _, c := range []struct {
		d    DNS
		want string
	}{
		{DNS{}, "url: missing"},
		{DNS{URL: "http://10.0.0.1:8000"}, "url: \"10.0.0.1\" is an address"},
		{DNS{URL: "http://[::1]"}, "url: \"::1\" is an address"},
		{DNS{URL: "http://a:8000", Service: "_http._tcp"}, "url: the port 8000"},
		{DNS{URL: "http://a/" + strings.Repeat("b", 100)}, "name: "},
		{DNS{URL: "http://a", Service: "http"}, "service: \"http\""},
		{DNS{URL: "http://a", Network: "tcp"}, "network: \"tcp\""},
		{DNS{URL: "http://a", Interval: time.Millisecond}, "interval: 1ms"},
		{DNS{URL: "http://a", Timeout: -1}, "timeout: -1ns"},
		{DNS{URL: "http://a", Keep: -1}, "keep: -1ns"},
		{DNS{URL: "http://a", Phase: 5 * second}, "phase: 5s"},
		{DNS{URL: "http://a", Phase: -1}, "phase: -1ns"},
		{DNS{URL: "http://a", Most: -1}, "most: -1"},
	} {
		_, err := NewDNS(c.d)
		wantError(t, err, c.want)
	}
	_, err := NewDNS(DNS{URL: "http://a", Most: -1, Keep: -1})
	wantError(t, err, "most")
	wantError(t, err, "keep")
}

func TestUntilBeat_IsOnTheGrid(t *testing.T) {
	for _, c := range []struct{ since, want time.Duration }{
		{-3 * second, 3 * second}, {0, 5 * second}, {second, 4 * second}, {5 * second, 5 * second}, {12 * second, 3 * second},
	} {
		if got := untilBeat(c.since, 5*second); got != c.want {
			t.Errorf("%v after the first beat: %v, want %v", c.since, got, c.want)
		}
	}
}

func ExampleOrigin() {
	d, err := NewDNS(DNS{URL: "http://engines.prod.svc/base", Service: "_http._tcp"})
	if err != nil {
		panic(err)
	}
	fmt.Println(d.Origin())
	// Output: dns http://_http._tcp.engines.prod.svc/base
}

// An endpoint that went while nothing could be learned is gone at the next look: a source
// says its whole list, not what has changed in it.
func TestF35_WhatWentDuringAnOutageIsGoneAfterIt(t *testing.T) {
	all := watchFor(t, 40*second, changing(DNS{}, func(_ context.Context, at time.Duration) ([]netip.Addr, error) {
		switch {
		case at < 8*second:
			return addrs("10.0.0.1", "10.0.0.2"), nil
		case at < 28*second:
			return nil, fmt.Errorf("server failure")
		}
		return addrs("10.0.0.1"), nil
	}))
	wantURLs(t, atTime(t, all, 20*second), "http://10.0.0.1:8000", "http://10.0.0.2:8000")
	wantURLs(t, atTime(t, all, 31*second), "http://10.0.0.1:8000")
}
