package observe

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"syscall"
	"time"
)

// wordsMost bounds what is said of why something could not be had.
const wordsMost = 200

// noRedirects returns a client that follows no redirects: where an endpoint is, the
// configuration says alone.
func noRedirects(c *http.Client) http.Client {
	own := *c
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return own
}

// get asks for a page. What of it is read goes into page: up to ok bytes of an answer
// with status 200 and up to others of another one; what is read to its end leaves the
// connection usable. It is no error when there is more, nor that the status isn't 200.
func get(ctx context.Context, c *http.Client, u *url.URL, header http.Header, accept string, page *bytes.Buffer, ok, others int64) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, cause(err)
	}
	if header != nil {
		req.Header = header.Clone()
	}
	req.Header.Set("Accept", accept)
	resp, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	most := ok
	if resp.StatusCode != http.StatusOK {
		most = others
	}
	page.Reset()
	if _, err = page.ReadFrom(io.LimitReader(resp.Body, most)); err != nil {
		return resp, err
	}
	return resp, nil
}

// failure is an error in words that are ours: few, and without what an endpoint said,
// who may quote a key. It unwraps to its cause, whose words may have both.
type failure struct {
	words string
	cause error
}

func (f *failure) Error() string { return f.words }
func (f *failure) Unwrap() error { return f.cause }

// fail makes a failure of an error of net/http's. It has the words of errors that are
// about the connection; any other may quote the answer.
func fail(err error, timeout time.Duration) error {
	err = cause(err)
	f := &failure{words: "no usable answer", cause: err}
	if n, ok := errors.AsType[net.Error](err); ok && n.Timeout() {
		f.words = fmt.Sprintf("no whole answer within %v", timeout)
		return f
	}
	if known := connectionError(err); known != nil {
		f.words = known.Error()
		f.words = f.words[:min(len(f.words), wordsMost)]
	}
	return f
}

// connectionError returns the error within err that is about the connection, or nil.
func connectionError(err error) error {
	if e, ok := errors.AsType[*net.OpError](err); ok {
		return e
	}
	if e, ok := errors.AsType[*net.DNSError](err); ok {
		return e
	}
	if e, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return e
	}
	if e, ok := errors.AsType[syscall.Errno](err); ok {
		return e
	}
	for _, e := range []error{io.ErrUnexpectedEOF, io.EOF, context.Canceled} {
		if errors.Is(err, e) {
			return e
		}
	}
	return nil
}

// cause returns an error of net/http's or net/url's without the URL.
func cause(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}

// statusError is an answer with a status of no use. It has the code alone: an endpoint
// may quote the key in the words beside it.
type statusError int

func (e statusError) Error() string { return fmt.Sprintf("status %d", int(e)) }

// pages are the buffers of answers being read. Kept by each of 500 scrapers, which
// sleep most of the time, they would be 100 MiB.
var pages = sync.Pool{New: func() any { return new(bytes.Buffer) }}
