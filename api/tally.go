package api

// Tally adds up what the chunks of one answer said, in any grammar. The zero Tally is
// ready to use.
type Tally struct {
	Chunks   int  // all of them, preamble included
	Content  bool // content was seen
	Visible  bool // visible content was seen
	Finished bool // the answer said why it ends
	Failed   bool // an error was seen
	Done     bool // the end mark was seen
	// NextSequence is the sequence_number that continues the stream; 0 where none was seen.
	NextSequence int

	counts   counts
	hasUsage bool
}

// Add takes in the next chunk.
func (t *Tally) Add(c Chunk) {
	t.Chunks++
	t.Content = t.Content || c.Kind == Content
	t.Visible = t.Visible || c.Visible
	t.Finished = t.Finished || c.Finish != nil
	t.Failed = t.Failed || c.Kind == Failure
	t.Done = t.Done || c.Kind == Done
	t.NextSequence = max(t.NextSequence, c.NextSequence)
	switch {
	case !c.HasUsage:
	case !t.hasUsage:
		t.counts, t.hasUsage = c.counts, true
	default:
		t.counts.update(c.counts)
	}
}

// Usage returns what the chunks said last. It is cumulative, so earlier reports are not
// added. A zero that can't be is Unknown: there is no answer without input, and no
// content without output.
func (t *Tally) Usage() Usage {
	if !t.hasUsage {
		return unknownUsage()
	}
	return t.counts.usage().plausible(t.Content)
}
