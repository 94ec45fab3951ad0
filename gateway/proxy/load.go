package proxy

// Load returns the calls in flight and the bytes of request bodies that are held for them.
func (g *Gateway) Load() (calls int, buffered int64) {
	return int(g.calls.Load()), g.buffered.used.Load()
}
