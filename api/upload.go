package api

import (
	"bytes"
	"strings"
)

// maxBoundary is the longest boundary that RFC 2046, section 5.1.1, allows.
const maxBoundary = 70

// maxPartHeader bounds the header of one part of an upload, in bytes.
const maxPartHeader = 16 << 10

// ReadUpload reads "model" and "stream" from an upload: a body of multipart/form-data (RFC
// 7578), wherever in it they stand. ModelAt is the place of the model's name, for Splice;
// N is 1 and all else is absent; there is no prompt. No part is copied, and files are stepped over by searching
// for the boundary.
//
// It takes the form that RFC 2046 prescribes and no looser one, since gateway and engine
// might make different things of that: lines end with CR LF, each header of a part stands
// on one line, a field is named by its name alone, not by a name* or one with a backslash,
// and is given once. A part that has a filename is a file and no field.
//
// The error is a *SyntaxError or a *FieldError.
func ReadUpload(contentType string, body []byte) (Request, error) {
	delimiter := delimiterOf(contentType)
	if delimiter == nil {
		return Request{}, &FieldError{Field: "Content-Type", Value: short([]byte(contentType)),
			Allowed: "multipart/form-data with a boundary of 1 to 70 characters"}
	}
	u := upload{body: body, delimiter: delimiter}
	q, err := u.read()
	if u.want != "" {
		return Request{}, &SyntaxError{Offset: u.i, Want: u.want, Format: "multipart/form-data"}
	}
	if err != nil {
		return Request{}, err
	}
	return q, nil
}

// delimiterOf returns what stands between two parts, or nil where the content type has no
// boundary that is allowed.
func delimiterOf(contentType string) []byte {
	kind, rest, _ := strings.Cut(contentType, ";")
	if !strings.EqualFold(strings.TrimSpace(kind), "multipart/form-data") {
		return nil
	}
	var boundary []byte
	params := parameters{rest: []byte(rest)}
	for params.next() {
		if bytes.EqualFold(params.name, []byte("boundary")) {
			if boundary != nil {
				return nil
			}
			boundary = params.value
		}
	}
	if params.bad || len(boundary) == 0 || len(boundary) > maxBoundary || boundary[len(boundary)-1] == ' ' {
		return nil
	}
	for _, c := range boundary {
		if !isAlphanumeric(c) && strings.IndexByte(`'()+_,-./:=? `, c) < 0 {
			return nil
		}
	}
	return append([]byte("\r\n--"), boundary...)
}

func isAlphanumeric(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z'
}

// upload steps through the parts of a body. The first mistake sticks: want is then not
// empty, and i is where it is.
type upload struct {
	body      []byte
	delimiter []byte
	i         int
	want      string
}

func (u *upload) fail(at int, want string) {
	if u.want == "" {
		u.i, u.want = at, want
	}
}

// read reads all parts.
func (u *upload) read() (Request, error) {
	q := Request{N: 1}
	var errs firstError
	var streamed bool
	for more := u.first(); more; {
		p := u.header()
		value, end := u.content()
		more = u.next(end)
		if u.want != "" {
			break
		}
		text := value.Of(u.body)
		switch {
		case string(p.name) == names[fieldModel]:
			switch {
			case q.Model != nil:
				errs.add(&FieldError{Field: names[fieldModel], Problem: Twice})
			case p.file || p.encoded || len(text) == 0:
				errs.add(&FieldError{Field: names[fieldModel], Value: p.describe(text), Allowed: "a model's name"})
			}
			q.Model, q.ModelAt = text, value
		case string(p.name) == names[fieldStream]:
			if streamed {
				errs.add(&FieldError{Field: names[fieldStream], Problem: Twice})
			}
			streamed = true
			on, ok := formBool(text)
			if q.Stream = on; !ok || p.file || p.encoded {
				errs.add(&FieldError{Field: names[fieldStream], Value: p.describe(text), Allowed: "true or false"})
			}
		}
	}
	if q.Model == nil {
		errs.add(&FieldError{Field: names[fieldModel], Problem: Missing})
	}
	return q, errs.err
}

// formBool reads a boolean as forms hold one.
func formBool(text []byte) (on, ok bool) {
	switch string(text) {
	case "true", "True", "1":
		return true, true
	case "false", "False", "0":
		return false, true
	}
	return false, false
}

// first steps over the first delimiter, which must begin the body. (RFC 2046 lets text
// stand before it. No form has some, and readers differ in how they step over it.)
func (u *upload) first() bool {
	line := u.delimiter
	if !bytes.HasPrefix(u.body, line) {
		line = bytes.TrimPrefix(line, []byte("\r\n"))
	}
	if !bytes.HasPrefix(u.body, line) || !u.delimits(len(line)) {
		u.fail(0, "the boundary that the content type gives")
		return false
	}
	return u.afterDelimiter(len(line))
}

// search returns the index of the delimiter at or after from, or the body's end.
func (u *upload) search(from int) int {
	for {
		n := bytes.Index(u.body[from:], u.delimiter)
		if n < 0 {
			return len(u.body)
		}
		from += n
		if u.delimits(from + len(u.delimiter)) {
			return from
		}
		from += len("\r\n")
	}
}

// delimits reports whether what stands at i makes the boundary before it a delimiter: with
// other characters it is the beginning of a longer line.
func (u *upload) delimits(i int) bool {
	rest := u.body[i:]
	return bytes.HasPrefix(rest, []byte("--")) || len(rest) > 0 && (isBlank(rest[0]) || rest[0] == '\r' || rest[0] == '\n')
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' }

// next steps over the delimiter at i and reports whether a part follows.
func (u *upload) next(i int) bool {
	if u.want != "" {
		return false
	}
	if i == len(u.body) {
		u.fail(i, "the boundary that the content type gives")
		return false
	}
	return u.afterDelimiter(i + len(u.delimiter))
}

// afterDelimiter steps over the rest of a delimiter's line.
func (u *upload) afterDelimiter(i int) bool {
	last := bytes.HasPrefix(u.body[i:], []byte("--"))
	if last {
		i += 2
	}
	for i < len(u.body) && isBlank(u.body[i]) {
		i++
	}
	switch {
	case last && i == len(u.body):
	case bytes.HasPrefix(u.body[i:], []byte("\r\n")):
		i += 2
	default:
		u.fail(i, "CR LF after the boundary")
		return false
	}
	u.i = i
	return !last
}

// content returns where the content of the part is whose header was read, and where the
// delimiter after it. The line end of the header may be the delimiter's as well.
func (u *upload) content() (Span, int) {
	if u.want != "" {
		return Span{}, 0
	}
	end := u.search(u.i - len("\r\n"))
	return Span{u.i, max(end, u.i)}, end
}
