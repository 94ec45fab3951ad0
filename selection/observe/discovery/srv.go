package discovery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
)

// lookupsAtOnce is how many targets of SRV records are looked up at a time.
const lookupsAtOnce = 8

// record is an SRV record of the priority that counts.
type record struct {
	target string
	port   uint16
	weight float64 // from 1
}

// lookService asks for the records and then for the addresses of their targets; nil
// where nothing is known.
func (w *watch) lookService(ctx context.Context) ([]address, error) {
	name := w.Service + "." + w.name
	records, err := w.lookRecords(ctx, name)
	if err != nil {
		err = lookupError{name, err}
	}
	records, err = w.records.heard(records, err, w.Keep)
	if records == nil {
		return nil, err
	}
	if n := len(records); n > w.Most {
		records = records[:w.Most]
		err = errors.Join(err, fmt.Errorf("%s has %d records, of which %d are used", name, n, w.Most))
	}
	failed := w.resolveAll(ctx, records)
	return w.addresses(records), errors.Join(err, failed)
}

// lookRecords returns the records of a name that count, nil where there are none. Some
// may be malformed; the others then stand beside the error.
func (w *watch) lookRecords(ctx context.Context, name string) ([]record, error) {
	_, found, err := w.Resolver.LookupSRV(ctx, "", "", name)
	records := lowest(found)
	if records == nil && err == nil {
		// RFC 2782: a lone target "." says that the service is decidedly not available.
		err = &net.DNSError{Name: name, IsNotFound: true}
	}
	return records, err
}

// lowest returns the records that have the lowest priority, by target and port, each
// once with its highest weight; nil of none.
func lowest(found []*net.SRV) []record {
	if len(found) == 0 {
		return nil
	}
	first := slices.MinFunc(found, func(a, b *net.SRV) int { return cmp.Compare(a.Priority, b.Priority) })
	var records []record
	for _, f := range found {
		if f.Priority == first.Priority && f.Target != "." && f.Target != "" && f.Port != 0 {
			records = append(records, record{strings.ToLower(f.Target), f.Port, max(1, float64(f.Weight))})
		}
	}
	slices.SortFunc(records, func(a, b record) int {
		return cmp.Or(cmp.Compare(a.target, b.target), cmp.Compare(a.port, b.port), cmp.Compare(b.weight, a.weight))
	})
	return slices.CompactFunc(records, func(a, b record) bool { return a.target == b.target && a.port == b.port })
}

// resolveAll looks up each target once, a few at a time, and forgets what is no longer
// one. A target that can't be looked up has the addresses that it last had. The error
// says how many those are and why the first is one.
func (w *watch) resolveAll(ctx context.Context, records []record) error {
	before := w.hosts
	w.hosts = make(map[string]*lastGood[netip.Addr], len(records))
	errs := make([]error, len(records))
	var wg sync.WaitGroup
	room := make(chan struct{}, lookupsAtOnce)
	for i, r := range records {
		if w.hosts[r.target] != nil {
			continue // with another port
		}
		host := before[r.target]
		if host == nil {
			host = new(lastGood[netip.Addr])
		}
		w.hosts[r.target] = host
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			found, err := w.resolve(ctx, r.target)
			_, errs[i] = host.heard(found, err, w.Keep)
		})
	}
	wg.Wait()
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d targets: %w", len(errs), len(w.hosts), errs[0])
}

// addresses returns where the records lead to; nil where that isn't known of any.
func (w *watch) addresses(records []record) []address {
	heaviest := 0.0
	for _, r := range records {
		heaviest = max(heaviest, r.weight)
	}
	known := len(records) == 0
	addresses := []address{}
	for _, r := range records {
		found := w.hosts[r.target].value
		known = known || found != nil
		for _, a := range found {
			weight := r.weight / heaviest / float64(len(found))
			addresses = append(addresses, address{netip.AddrPortFrom(a, r.port), weight})
		}
	}
	if !known {
		return nil
	}
	return addresses
}
