package discovery

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a resolver in fake time. A nil method's names don't exist.
type fake struct {
	ip  func(ctx context.Context, network, host string) ([]netip.Addr, error)
	srv func(ctx context.Context, name string) ([]*net.SRV, error)
}

func (f fake) LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) {
	if f.ip == nil {
		return nil, noName
	}
	return f.ip(ctx, network, host)
}

func (f fake) LookupSRV(ctx context.Context, service, proto, name string) (string, []*net.SRV, error) {
	if f.srv == nil || service != "" || proto != "" {
		return "", nil, noName
	}
	records, err := f.srv(ctx, name)
	return name, records, err
}

var (
	noName   = &net.DNSError{Err: "no such host", IsNotFound: true}
	servFail = &net.DNSError{Err: "server misbehaving", IsTemporary: true}
	timedOut = &net.DNSError{Err: "i/o timeout", IsTimeout: true}
)

func addrs(list ...string) []netip.Addr {
	var a []netip.Addr
	for _, s := range list {
		a = append(a, netip.MustParseAddr(s))
	}
	return a
}

// told is what a source told, and when.
type told struct {
	at        time.Duration
	endpoints []Endpoint
	err       error
}

func (w told) urls() []string {
	var urls []string
	for _, e := range w.endpoints {
		urls = append(urls, e.URL)
	}
	return urls
}

// watchFor lets a source be watched for a while in fake time.
func watchFor(t *testing.T, during time.Duration, source func(start time.Time) (Source, error)) (all []told) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		s, err := source(start)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), during)
		defer cancel()
		s.Watch(ctx, func(endpoints []Endpoint, err error) {
			all = append(all, told{time.Since(start), endpoints, err})
		})
		if got := time.Since(start); ctx.Err() != nil && got != during {
			t.Errorf("Watch returned after %v, its context ended after %v", got, during)
		}
	})
	return all
}

// atTime returns what was told last at or before an instant.
func atTime(t *testing.T, all []told, at time.Duration) told {
	t.Helper()
	i := slices.IndexFunc(all, func(w told) bool { return w.at > at })
	if i < 0 {
		i = len(all)
	}
	if i == 0 {
		t.Fatalf("nothing was told until %v", at)
	}
	return all[i-1]
}

func wantURLs(t *testing.T, w told, want ...string) {
	t.Helper()
	if got := w.urls(); !slices.Equal(got, want) {
		t.Errorf("at %v: %v (%v), want %v", w.at, got, w.err, want)
	}
}

// wantError checks that an error has the text, or that there is none where that is "".
func wantError(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("error %q, want none", err)
	case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
		t.Errorf("error %q, want one with %q", err, want)
	}
}

// listed is a source that says what a test has it say.
type listed struct {
	origin Origin
	says   chan told
}

func newListed(kind Kind, of string) *listed { return &listed{Origin{kind, of}, make(chan told)} }

func (l *listed) Origin() Origin { return l.origin }

func (l *listed) Watch(ctx context.Context, tell func([]Endpoint, error)) {
	for {
		select {
		case <-ctx.Done():
			return
		case w := <-l.says:
			tell(w.endpoints, w.err)
		}
	}
}

// say has the source tell endpoints of these URLs, and waits until all is done that
// follows.
func (l *listed) say(t *testing.T, urls ...string) {
	t.Helper()
	l.says <- told{endpoints: endpoints(t, urls...)}
	synctest.Wait()
}

func (l *listed) fail(err string) {
	l.says <- told{err: errors.New(err)}
	synctest.Wait()
}

func endpoints(t testing.TB, urls ...string) []Endpoint {
	t.Helper()
	list := []Endpoint{}
	for _, u := range urls {
		e, err := Endpoint{URL: u}.Normal()
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, e)
	}
	return list
}
