package api

// walk steps through JSON that nobody has validated. It never fails and never reads
// outside b: on anything that is not JSON it goes to the end and sets bad.
type walk struct {
	b     []byte
	i     int
	bad   bool
	marks marks // of b; nil where there are none
	room  [keyBytes]byte
}

func (w *walk) stop() { w.bad, w.i = true, len(w.b) }

// at skips white space and returns the byte at which a value or bracket begins, 0 at
// the end.
func (w *walk) at() byte {
	if w.i < len(w.b) && w.b[w.i] > ' ' {
		return w.b[w.i]
	}
	return w.pastSpace()
}

func (w *walk) pastSpace() byte {
	if w.i = skipSpace(w.b, w.i); w.i < len(w.b) {
		return w.b[w.i]
	}
	return 0
}

// member is at, but for a comma before a member, which it steps over.
func (w *walk) member() byte {
	c := w.at()
	if c == ',' {
		w.i++
		c = w.at()
	}
	return c
}

// enter steps into the value where it is what bracket opens, and over it otherwise.
func (w *walk) enter(bracket byte) bool {
	if w.at() == bracket {
		w.i++
		return true
	}
	w.value()
	return false
}

// field returns the next field's name, standing before its value, or false after the
// object's end. The name is valid until the next call.
func (w *walk) field() ([]byte, bool) {
	switch w.member() {
	case '"':
	case '}':
		w.i++
		return nil, false
	default:
		w.stop()
		return nil, false
	}
	start := w.i + 1
	end := delimiter(w.b, start, start+keyBytes)
	plain := end >= 0 && w.b[end] == '"'
	if !plain {
		end = skipString(w.b, start) - 1
	}
	if end < 0 {
		w.stop()
		return nil, false
	}
	if w.i = end + 1; w.at() != ':' {
		w.stop()
		return nil, false
	}
	w.i++
	if plain {
		return w.b[start:end], true
	}
	return decodedKey(w.b[start:end], &w.room), true
}

// element reports whether the array has another value, and stands before it.
func (w *walk) element() bool {
	switch w.member() {
	case ']':
		w.i++
		return false
	case 0:
		w.stop()
		return false
	}
	return true
}

// value steps over a value and returns its bytes.
func (w *walk) value() []byte {
	w.at()
	start, end := w.i, skipValue(w.b, w.i, w.marks)
	if end <= start {
		w.stop()
		return nil
	}
	w.i = end
	return w.b[start:end]
}
