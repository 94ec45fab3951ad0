package queueing

// AttentionShare returns which part of a prompt's prefill is attention: n/(n + c·d) for n
// tokens, hidden dimension d and a block of c·d² parameters (c is 12 for a block with
// full multi-head attention and a feed-forward layer of 4·d, and up to 19 in models in
// use). The rest is linear in tokens. Causal masks are counted, constants are not.
//
// Source: article 5.3.
func AttentionShare(tokens, hidden, c float64) float64 {
	return tokens / (tokens + float64(c*hidden))
}

// PrefillSaving returns which part of a prompt's prefill is saved when the given part of its
// tokens, all at its head, is cached. What is linear in tokens saves that part; attention
// saves its square only, because the tokens that are left attend to the cached ones:
//
//	saving = (1−a)·m/n + a·(m/n)² = m/n · (1 − a·(1−m/n))
//
// where a is attention's share of the whole. So it lies between (m/n)² and m/n.
//
// Source: article 5.3.
func PrefillSaving(cached, attention float64) float64 {
	return float64(cached * (1 - float64(attention*(1-cached))))
}
