package flow

// Continuation: an answer that broke off after its first content may go on at another endpoint,
// where the driver can prompt that one with what was said and its configuration asks for it. To
// the machine it is a further attempt of the call: within its ceiling, paid for from the retry
// budget, not at an endpoint that it has tried, after a backoff. The broken attempt has been
// judged as every torn answer is, and is not judged again once the next one has content. What was
// said makes the prompt longer; what is known of the prompt stays what the client sent, whose
// blocks come first and may be held elsewhere.
//
// Source: article section 9.4: buffer emitted tokens and, on failure, re-prompt with the
// already-generated prefix.

// resume opens a call again whose answer has broken off and may go on elsewhere. Its first token
// has come: no deadline of that is left to miss, and no hedge to be sent.
func (m *Machine) resume(r *report, c *call) bool {
	if !r.resumes || !r.outcome.Retryable() {
		return false
	}
	if c.hedge || c.twin != none { // two records of one call, one of them aborted
		m.actions = append(m.actions, Action{Kind: GiveUp, Reason: NoAlternative, Ticket: r.ticket, Attempt: c.attempt, Wait: c.waited})
		return false
	}
	c.settled, c.hedged = false, true
	c.request.Firm = false
	return true
}
