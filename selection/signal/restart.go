package signal

// startedSlack is by how much Started must have moved on. Unix seconds that are computed
// from a host's boot time move by less when its clock is corrected.
const startedSlack = 1

// Restarted reports whether the endpoint's engine was started anew between two reports,
// of which old is what was known before and new is the later one alone, not merged: its
// Started moved on by more than one, or one of its counters is below what it was. After
// a restart nothing is true any more that was believed of the engine's cache.
//
// An unknown number proves nothing, on either side. Nor does a sum of which a part is
// missing: as long as a counter is told by rank in one of the two reports, it is looked
// at rank by rank, in those that both reports have. So a rank that stays away for a
// scrape is no restart, and a rank that comes back with less than it had before it went
// isn't seen as one, unless Started tells.
func Restarted(old, new Load) bool {
	if old.Started.Known && new.Started.Known && new.Started.Value > old.Started.Value+startedSlack {
		return true
	}
	return fell(&old, &new, old.PrefixQueries, new.PrefixQueries, func(r *Rank) float64 { return r.PrefixQueries }) ||
		fell(&old, &new, old.PrefixHits, new.PrefixHits, func(r *Rank) float64 { return r.PrefixHits }) ||
		fell(&old, &new, old.Generated, new.Generated, func(r *Rank) float64 { return r.Generated }) ||
		fell(&old, &new, old.Preemptions, new.Preemptions, func(r *Rank) float64 { return r.Preemptions })
}

// fell reports whether a counter went backwards.
func fell(old, new *Load, before, after Gauge, part func(*Rank) float64) bool {
	olds, news := old.Ranks.All(), new.Ranks.All()
	if !told(olds, part) && !told(news, part) {
		return before.Known && after.Known && after.Value < before.Value
	}
	for len(olds) > 0 && len(news) > 0 {
		o, n := &olds[0], &news[0]
		if o.ID == n.ID && part(n) < part(o) { // never true of a number that isn't told
			return true
		}
		if o.ID <= n.ID {
			olds = olds[1:]
		}
		if n.ID <= o.ID {
			news = news[1:]
		}
	}
	return false
}

// told reports whether a rank tells the number.
func told(ranks []Rank, part func(*Rank) float64) bool {
	for i := range ranks {
		if v := part(&ranks[i]); v == v {
			return true
		}
	}
	return false
}
