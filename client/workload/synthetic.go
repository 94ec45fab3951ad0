package workload

// The synthetic workloads of vLLM's and SGLang's benchmarks. All of them are dialogues.

// Random is vLLM's random data set: prompts that share nothing but a prefix of fixed length.
// vLLM's --random-range-ratio R is a length that is uniform around its value: Around.
type Random struct {
	Prefix int     `spec:"prefix" doc:"tokens at the head of every prompt, the same for all (--random-prefix-len)"`
	Input  Lengths `spec:"input" doc:"tokens of a prompt's own, behind the prefix (--random-input-len)"`
	Output Lengths `spec:"output" doc:"tokens of an answer (--random-output-len)"`
}

// Validate reports every field outside its range.
func (g Random) Validate() error {
	var c check
	c.whole("prefix", g.Prefix, 0, maxContext/4)
	c.lengths("input", g.Input, 1, maxLength/4)
	c.lengths("output", g.Output, 0, maxLength/4)
	return c.join()
}

func (g Random) dialogue() Dialogue {
	return Dialogue{
		Systems: 1, System: Fixed(g.Prefix), Turns: Fixed(1), User: g.Input, Output: g.Output, Context: maxContext,
	}
}

// Session returns the n-th session, a single call.
func (g Random) Session(root uint64, n int) Session { return g.dialogue().Session(root, n) }

// Loop says that nothing waits.
func (g Random) Loop() string { return g.dialogue().Loop() }

// Count returns 0: they do not end.
func (Random) Count() int { return 0 }

// PrefixRepetition is vLLM's prefix_repetition: prompts that begin with one of a few
// prefixes. vLLM makes the same number of prompts for each prefix, drops the remainder of
// the number of calls by that of prefixes, and shuffles. Here each call draws its prefix, all
// of them alike, so no call is dropped, and how often a prefix comes varies as draws do.
type PrefixRepetition struct {
	Prefixes int     `spec:"prefixes" doc:"different prefixes (--prefix-repetition-num-prefixes)"`
	Prefix   int     `spec:"prefix" doc:"tokens of a prefix (--prefix-repetition-prefix-len)"`
	Suffix   int     `spec:"suffix" doc:"tokens of a prompt's own (--prefix-repetition-suffix-len)"`
	Output   Lengths `spec:"output" doc:"tokens of an answer (--prefix-repetition-output-len)"`
}

// Validate reports every field outside its range.
func (g PrefixRepetition) Validate() error {
	var c check
	c.whole("prefixes", g.Prefixes, 1, maxShared)
	c.whole("prefix", g.Prefix, 0, maxContext/4)
	c.whole("suffix", g.Suffix, 1, maxContext/4)
	c.lengths("output", g.Output, 0, maxLength/4)
	return c.join()
}

func (g PrefixRepetition) dialogue() Dialogue {
	return Dialogue{
		Systems: g.Prefixes, System: Fixed(g.Prefix), Turns: Fixed(1), User: Fixed(g.Suffix), Output: g.Output, Context: maxContext,
	}
}

// Session returns the n-th session, a single call.
func (g PrefixRepetition) Session(root uint64, n int) Session { return g.dialogue().Session(root, n) }

// Loop says that nothing waits.
func (g PrefixRepetition) Loop() string { return g.dialogue().Loop() }

// Count returns 0: they do not end.
func (PrefixRepetition) Count() int { return 0 }

// SharedPrefix is SGLang's generated-shared-prefix: groups of prompts that share a system
// prompt. SGLang makes a number of prompts for each group and shuffles them; here each
// session draws its group, so the numbers of a group hold on average.
type SharedPrefix struct {
	Groups   int     `spec:"groups" doc:"different system prompts (--gsp-num-groups)"`
	Prompts  int     `spec:"prompts" doc:"sessions a group has on average; the workload ends after groups times as many (--gsp-prompts-per-group); 0: it does not end"`
	System   Lengths `spec:"system" doc:"tokens of a system prompt (--gsp-system-prompt-len)"`
	Question Lengths `spec:"question" doc:"tokens of a question (--gsp-question-len)"`
	Output   Lengths `spec:"output" doc:"tokens of an answer (--gsp-output-len)"`
	Turns    Lengths `spec:"turns" doc:"questions of a session, each behind all before it (--gsp-num-turns)"`
	Gap      Delays  `spec:"gap" doc:"from the end of an answer to the next question"`
	Zipf     float64 `spec:"zipf" doc:"how uneven groups are: the k-th has 1/k^zipf as many sessions as the first (--gsp-zipf-alpha); 0: all alike"`
}

// Validate reports every field outside its range.
func (g SharedPrefix) Validate() error {
	var c check
	c.whole("groups", g.Groups, 1, maxShared)
	c.whole("prompts", g.Prompts, 0, maxShared)
	c.lengths("system", g.System, 0, maxLength/4)
	c.lengths("question", g.Question, 1, maxLength/4)
	c.lengths("output", g.Output, 0, maxLength/4)
	c.lengths("turns", g.Turns, 1, maxTurns)
	c.number("zipf", g.Zipf, 0, maxZipf)
	return c.join()
}

func (g SharedPrefix) dialogue() Dialogue {
	return Dialogue{
		Systems: g.Groups, Zipf: g.Zipf, System: g.System, Turns: g.Turns, User: g.Question, Output: g.Output, Gap: g.Gap, Context: maxContext,
	}
}

// Session returns the n-th session.
func (g SharedPrefix) Session(root uint64, n int) Session { return g.dialogue().Session(root, n) }

// Loop says that turns wait, where there are several.
func (g SharedPrefix) Loop() string { return g.dialogue().Loop() }

// Count returns groups times prompts.
func (g SharedPrefix) Count() int { return g.Groups * g.Prompts }
