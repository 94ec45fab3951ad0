package discovery

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Record types and response codes of RFC 1035, 2782 and 3596.
const (
	typeA, typeAAAA, typeSRV = 1, 28, 33

	rcodeServFail, rcodeNXDomain = 2, 3
)

// zone is what a DNS server says: by name without the final dot, in small letters, the
// data of each type's records. A name that isn't there is NXDOMAIN.
type zone map[string]map[uint16][][]byte

func a(list ...string) (data [][]byte) {
	for _, address := range addrs(list...) {
		data = append(data, address.AsSlice())
	}
	return data
}

func srvData(priority, weight, port uint16, target string) []byte {
	b := binary.BigEndian.AppendUint16(nil, priority)
	b = binary.BigEndian.AppendUint16(b, weight)
	b = binary.BigEndian.AppendUint16(b, port)
	for label := range strings.SplitSeq(target, ".") {
		b = append(append(b, byte(len(label))), label...)
	}
	return append(b, 0)
}

// server is a DNS server on loopback, UDP and TCP.
type server struct {
	address  string
	zone     atomic.Pointer[zone]
	hangs    atomic.Bool // it answers nothing
	servFail atomic.Bool // it answers SERVFAIL
	failAAAA atomic.Bool // and that to queries for AAAA records alone
	overTCP  atomic.Int64
	asked    atomic.Int64
}

func startServer(t *testing.T, z zone) *server {
	t.Helper()
	s := new(server)
	s.zone.Store(&z)
	packets, streams := listenBoth(t)
	s.address = packets.LocalAddr().String()
	var wg sync.WaitGroup
	wg.Go(func() { s.serveUDP(packets) })
	wg.Go(func() { s.serveTCP(streams) })
	t.Cleanup(func() {
		_ = packets.Close()
		_ = streams.Close()
		wg.Wait()
	})
	return s
}

// listenBoth listens at one port that is free for UDP and for TCP.
func listenBoth(t *testing.T) (net.PacketConn, net.Listener) {
	t.Helper()
	for range 100 {
		streams, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		packets, err := net.ListenPacket("udp", streams.Addr().String())
		if err == nil {
			return packets, streams
		}
		_ = streams.Close()
	}
	t.Fatal("no port is free for both")
	return nil, nil
}

func (s *server) serveUDP(c net.PacketConn) {
	b := make([]byte, 2048)
	for {
		n, from, err := c.ReadFrom(b)
		if err != nil {
			return
		}
		if reply := s.answer(b[:n], 512); reply != nil {
			_, _ = c.WriteTo(reply, from)
		}
	}
}

func (s *server) serveTCP(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		_ = c.SetDeadline(time.Now().Add(5 * time.Second))
		head := make([]byte, 2)
		if _, err := io.ReadFull(c, head); err == nil {
			query := make([]byte, binary.BigEndian.Uint16(head))
			if _, err := io.ReadFull(c, query); err == nil {
				s.overTCP.Add(1)
				if reply := s.answer(query, 65535); reply != nil {
					_, _ = c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...))
				}
			}
		}
		_ = c.Close()
	}
}

// answer returns the reply to a query, nil for none.
func (s *server) answer(query []byte, most int) []byte {
	s.asked.Add(1)
	if s.hangs.Load() || len(query) < 12 {
		return nil
	}
	var labels []string
	at := 12
	for query[at] != 0 {
		n := int(query[at])
		labels = append(labels, string(query[at+1:at+1+n]))
		at += 1 + n
	}
	kind := binary.BigEndian.Uint16(query[at+1:])
	end := at + 5
	reply := append([]byte{query[0], query[1], 0x85, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, query[12:end]...) // QR AA RD RA
	types, ok := (*s.zone.Load())[strings.ToLower(strings.Join(labels, "."))]
	switch {
	case s.servFail.Load(), s.failAAAA.Load() && kind == typeAAAA:
		reply[3] |= rcodeServFail
		return reply
	case !ok:
		reply[3] |= rcodeNXDomain
		return reply
	}
	full := slices.Clone(reply)
	for _, data := range types[kind] {
		full = append(full, 0xc0, 12) // the question's name
		full = binary.BigEndian.AppendUint16(full, kind)
		full = append(full, 0, 1, 0, 0, 0, 1) // IN, TTL 1 s
		full = binary.BigEndian.AppendUint16(full, uint16(len(data)))
		full = append(full, data...)
	}
	if len(full) > most {
		reply[2] |= 0x02 // TC
		return reply
	}
	binary.BigEndian.PutUint16(full[6:], uint16(len(types[kind])))
	return full
}

// watching watches a source of the server in real time. next waits until it tells what
// is wanted.
type watching struct {
	t    *testing.T
	told chan told
}

func watchServer(t *testing.T, s *server, d DNS) *watching {
	t.Helper()
	r, err := NewResolver(s.address)
	if err != nil {
		t.Fatal(err)
	}
	d.Resolver = r
	d.Interval = 20 * time.Millisecond
	source, err := NewDNS(d)
	if err != nil {
		t.Fatal(err)
	}
	w := &watching{t, make(chan told)}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		source.Watch(ctx, func(endpoints []Endpoint, err error) {
			select {
			case w.told <- told{endpoints: endpoints, err: err}:
			case <-ctx.Done():
			}
		})
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	return w
}

// until waits for a look with these endpoints and an error with the text, "" for none.
func (w *watching) until(err string, urls ...string) told {
	w.t.Helper()
	var last told
	limit := time.After(30 * time.Second)
	for {
		select {
		case last = <-w.told:
			if slices.Equal(last.urls(), urls) && (last.err == nil) == (err == "") &&
				(last.err == nil || strings.Contains(last.err.Error(), err)) {
				return last
			}
		case <-limit:
			w.t.Fatalf("last told: %v, %v; want %v and an error with %q", last.urls(), last.err, urls, err)
		}
	}
}

// TestF38_Server goes through the case's variants with a DNS server and the real resolver.
func TestF38_Server(t *testing.T) {
	s := startServer(t, zone{"engines.test": {typeA: a("10.0.0.1")}})
	w := watchServer(t, s, DNS{URL: "http://engines.test.:8000", Timeout: 200 * time.Millisecond, Keep: time.Second})
	turn := func(z zone) { s.zone.Store(&z) }
	w.until("", "http://10.0.0.1:8000")

	turn(zone{"engines.test": {typeA: a("10.0.0.3", "10.0.0.2")}})
	w.until("", "http://10.0.0.2:8000", "http://10.0.0.3:8000")

	turn(zone{})
	w.until("no such name", "http://10.0.0.2:8000", "http://10.0.0.3:8000")

	turn(zone{"engines.test": {typeAAAA: a("fd00::1")}})
	w.until("", "http://[fd00::1]:8000")

	s.servFail.Store(true)
	w.until("server misbehaving", "http://[fd00::1]:8000")
	s.servFail.Store(false)
	w.until("", "http://[fd00::1]:8000")

	s.hangs.Store(true)
	w.until("no answer in time", "http://[fd00::1]:8000")
	turn(zone{"engines.test": {typeA: a("10.0.0.4"), typeAAAA: a("fd00::4")}})
	s.hangs.Store(false)
	w.until("", "http://10.0.0.4:8000", "http://[fd00::4]:8000")

	turn(zone{"engines.test": {}}) // the name, and no record of the kind
	w.until("no such name", "http://10.0.0.4:8000", "http://[fd00::4]:8000")
	w.until("so that none is left")
}

func TestF38_Server_WhenThereAreManyAddresses_AsksOverTCP(t *testing.T) {
	var many, want []string
	for i := range 200 {
		many = append(many, fmt.Sprintf("10.0.0.%d", 199-i))
		want = append(want, fmt.Sprintf("http://10.0.0.%d:8000", i))
	}
	s := startServer(t, zone{"engines.test": {typeA: a(many...)}})
	watchServer(t, s, DNS{URL: "http://engines.test.:8000"}).until("", want...)
	if s.overTCP.Load() == 0 {
		t.Error("the server was not asked over TCP")
	}
}

func TestF38_Server_WhenAskedForSRV_FollowsIt(t *testing.T) {
	s := startServer(t, zone{
		"_http._tcp.engines.test": {typeSRV: {
			srvData(0, 60, 8001, "gpu-1.engines.test"), srvData(0, 30, 8002, "gpu-2.engines.test"), srvData(1, 9, 8003, "gpu-1.engines.test"),
		}},
		"gpu-1.engines.test": {typeA: a("10.0.0.1")},
		"gpu-2.engines.test": {typeAAAA: a("fd00::2")},
	})
	got := watchServer(t, s, DNS{URL: "http://engines.test.", Service: "_http._tcp"}).until("", "http://10.0.0.1:8001", "http://[fd00::2]:8002")
	if got.endpoints[0].Weight != 1 || got.endpoints[1].Weight != 0.5 {
		t.Errorf("%+v", got.endpoints)
	}
}

// TestF38_Server_WhenHalfAnAnswerFails_KeepsTheList has a server that fails the AAAA
// query alone: the A records by themselves are not the list.
func TestF38_Server_WhenHalfAnAnswerFails_KeepsTheList(t *testing.T) {
	s := startServer(t, zone{"engines.test": {typeA: a("10.0.0.1"), typeAAAA: a("fd00::1")}})
	w := watchServer(t, s, DNS{URL: "http://engines.test.:8000"})
	w.until("", "http://10.0.0.1:8000", "http://[fd00::1]:8000")
	s.failAAAA.Store(true)
	w.until("server misbehaving", "http://10.0.0.1:8000", "http://[fd00::1]:8000")
}

// TestF75_Server_WhenALookupIsGivenUp_NothingIsLeft has the resolver wait for 5s, as it
// does by itself, for an answer that doesn't come, when the source is ended.
func TestF75_Server_WhenALookupIsGivenUp_NothingIsLeft(t *testing.T) {
	for _, name := range []string{"", "_http._tcp"} {
		t.Run(name, func(t *testing.T) {
			s := startServer(t, zone{})
			s.hangs.Store(true)
			before := goleak.IgnoreCurrent()
			r, err := NewResolver(s.address)
			if err != nil {
				t.Fatal(err)
			}
			source, err := NewDNS(DNS{URL: "http://engines.test.", Service: name, Resolver: r})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			wg.Go(func() {
				source.Watch(ctx, func(endpoints []Endpoint, err error) { t.Errorf("told %v, %v", endpoints, err) })
			})
			for s.asked.Load() == 0 {
				time.Sleep(time.Millisecond)
			}
			cancel()
			wg.Wait()
			goleak.VerifyNone(t, before)
		})
	}
}

func TestNewResolver_TakesAddressesOnly(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "10.0.0.10": "10.0.0.10:53", "10.0.0.10:5353": "10.0.0.10:5353",
		"fd00::a": "[fd00::a]:53", "[fd00::a]": "[fd00::a]:53", "[fd00::a]:5353": "[fd00::a]:5353",
	} {
		if got, err := serverAddress(in); err != nil || got != want {
			t.Errorf("%q: %q, %v; want %q", in, got, err, want)
		}
	}
	for _, in := range []string{"dns.example", "dns.example:53", "10.0.0.10:0", "10.0.0.10:70000", ":53"} {
		_, err := NewResolver(in)
		wantError(t, err, "resolver: ")
	}
}

// TestWhy_WhenAFailureRepeats_SaysTheSame has the port that the resolver asked from in
// the resolver's words.
func TestWhy_WhenAFailureRepeats_SaysTheSame(t *testing.T) {
	for _, port := range []int{40001, 40002} {
		err := &net.DNSError{Err: fmt.Sprintf("read udp 127.0.0.1:%d->127.0.0.1:53: read: connection refused", port), IsTemporary: true}
		if got := why(err); got != "connection refused" {
			t.Errorf("%q", got)
		}
	}
	if got := why(errors.New("as it is: so")); got != "as it is: so" {
		t.Errorf("%q", got)
	}
}
