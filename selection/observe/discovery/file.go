package discovery

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"
)

// DefaultFileInterval is the time from one look at a file to the next where a File names
// none.
const DefaultFileInterval = time.Second

// fileMost bounds the bytes of a file.
const fileMost = 1 << 20

// File describes a source that reads its list from a file, in either of two forms.
//
// Text has one endpoint a line, and may say more about it; # starts a comment:
//
//	http://10.0.0.1:8000
//	10.0.0.2:8000 weight=2 name=gpu-2          # http
//	https://[fd00::3]:8000 host=engines.prod
//
// JSON is what Prometheus reads as file_sd_config. Of the labels, weight, name, host and
// __scheme__ count, and the others are Prometheus' own:
//
//	[{"targets": ["10.0.0.1:8000", "10.0.0.2:8000"], "labels": {"weight": "2"}}]
//
// The file is read at each look, so that it may be written, renamed over or, as
// Kubernetes does it, swapped with the folder around it. A change counts once two looks
// in a row have seen the same bytes, for a file that is being written is read in halves.
// A file that can't be read, or is wrong anywhere, changes nothing: the last good list
// stands. "No endpoints" is written [], for a file with nothing in it is more often one
// that somebody is about to write.
type File struct {
	Path     string
	Interval time.Duration // from one look to the next; 0: DefaultFileInterval; at least 10ms
	Most     int           // endpoints, more are an error; 0: Most
}

type file struct{ File }

// NewFile returns the source that f describes. The file need not exist yet.
func NewFile(f File) (Source, error) {
	f.Interval = cmp.Or(f.Interval, DefaultFileInterval)
	f.Most = cmp.Or(f.Most, Most)
	switch {
	case f.Path == "":
		return nil, errors.New("path: missing")
	case f.Interval < leastInterval:
		return nil, fmt.Errorf("interval: %v is not allowed; allowed: at least %v", f.Interval, leastInterval)
	case f.Most < 0:
		return nil, fmt.Errorf("most: %d is not allowed; allowed: above 0", f.Most)
	}
	return &file{f}, nil
}

func (f *file) Origin() Origin { return Origin{KindFile, f.Path} }

func (f *file) Watch(ctx context.Context, tell func([]Endpoint, error)) {
	ticker := time.NewTicker(f.Interval)
	defer ticker.Stop()
	r := reader{file: f}
	for {
		endpoints, err := r.look()
		if ctx.Err() != nil {
			return
		}
		tell(endpoints, err)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// reader is what lasts from one look to the next.
type reader struct {
	*file
	looked   bool         // before
	now, was bytes.Buffer // the bytes of this look and of the last that had any
	parsed   bool         // was has been parsed, with the result below

	endpoints []Endpoint // of the last good file; nil: there was none
	err       error      // what is wrong with was
}

// look reads the file once and returns what holds now.
func (r *reader) look() ([]Endpoint, error) {
	first := !r.looked
	r.looked = true
	r.now.Reset()
	if err := readFile(r.Path, &r.now); err != nil {
		return r.endpoints, err
	}
	settled := bytes.Equal(r.now.Bytes(), r.was.Bytes())
	if !settled {
		r.now, r.was = r.was, r.now
		r.parsed = false
	}
	if r.parsed || !settled && !first {
		return r.endpoints, r.err
	}
	endpoints, err := parse(r.was.Bytes(), r.Most)
	if err == nil {
		r.endpoints = endpoints
	} else {
		err = fmt.Errorf("%s: %w", r.Path, err)
	}
	r.parsed, r.err = true, err
	return r.endpoints, r.err
}

// readFile reads a regular file of at most fileMost bytes into b.
func readFile(path string, b *bytes.Buffer) error {
	// Without O_NONBLOCK the opening of a named pipe waits for somebody to write.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s: not a regular file", path)
	}
	n, err := b.ReadFrom(io.LimitReader(f, fileMost+1))
	if err != nil {
		return err
	}
	if n > fileMost {
		return fmt.Errorf("%s: longer than %d bytes", path, fileMost)
	}
	return nil
}
