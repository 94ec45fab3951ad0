package proxy

import "bytes"

// keyWatch finds an endpoint's key in what passes to a client, also where it lies across
// two writes. Where there is no key it costs nothing. It does not see a key that is
// encoded: escaped in JSON, or compressed.
type keyWatch struct {
	key  []byte
	tail []byte // the last bytes that passed, one fewer than the key has
	join []byte // scratch
}

// reset readies the watch for an answer of an endpoint with the key.
func (w *keyWatch) reset(key string) {
	w.key, w.tail = append(w.key[:0], key...), w.tail[:0]
}

// in reports whether p by itself quotes the key. It remembers nothing.
func (w *keyWatch) in(p []byte) bool { return len(w.key) > 0 && bytes.Contains(p, w.key) }

// sees reports whether p, after what passed before, quotes the key.
func (w *keyWatch) sees(p []byte) bool {
	if len(w.key) == 0 {
		return false
	}
	if w.in(p) {
		return true
	}
	most := len(w.key) - 1
	w.join = append(append(w.join[:0], w.tail...), p[:min(len(p), most)]...)
	if bytes.Contains(w.join, w.key) {
		return true
	}
	if len(p) >= most {
		w.tail = append(w.tail[:0], p[len(p)-most:]...)
	} else {
		w.tail = append(w.tail[:0], w.join[max(len(w.join)-most, 0):]...)
	}
	return false
}
