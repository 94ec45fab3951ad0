package workload

import (
	"fmt"
	"math"
)

// Validate returns what contradicts the description of Session, or nil. blockTokens is the
// Source's.
func (s *Session) Validate(blockTokens int) error {
	if s.At < 0 {
		return fmt.Errorf("the session's At is %v; allowed: 0 or more", s.At)
	}
	if err := s.Terms.validate(); err != nil {
		return fmt.Errorf("the session's %w", err)
	}
	if len(s.Calls) == 0 {
		return fmt.Errorf("the session's Calls has none; allowed: one or more")
	}
	for i := range s.Calls {
		if err := s.validateCall(i, blockTokens); err != nil {
			return fmt.Errorf("call %d: %w", i, err)
		}
	}
	return nil
}

func (s *Session) validateCall(i, blockTokens int) error {
	c := &s.Calls[i]
	bad := func(field string, value any, allowed string) error {
		return fmt.Errorf("%s is %v; allowed: %s", field, value, allowed)
	}
	for _, after := range c.After {
		if after < 0 || after >= i {
			return bad("After", c.After, "numbers of earlier calls of the session, from 0")
		}
	}
	full, both := 0, 0
	if blockTokens > 0 {
		full, both = c.PromptTokens/blockTokens, (c.PromptTokens+c.OutputTokens)/blockTokens
	}
	switch {
	case c.Gap < 0:
		return bad("Gap", c.Gap, "0 or more")
	case c.Offset < 0 || i > 0 && c.Offset < s.Calls[i-1].Offset:
		return bad("Offset", c.Offset, "0 or more, and not before that of the call before")
	case c.PromptTokens < 1 || c.PromptTokens > math.MaxInt32:
		return bad("PromptTokens", c.PromptTokens, fmt.Sprintf("1 to %d", math.MaxInt32))
	case c.OutputTokens < 0 || c.OutputTokens > math.MaxInt32:
		return bad("OutputTokens", c.OutputTokens, fmt.Sprintf("0 to %d", math.MaxInt32))
	case len(c.Blocks) > full:
		return bad("len(Blocks)", len(c.Blocks), fmt.Sprintf("at most %d, the prompt's full blocks", full))
	case len(c.AnswerBlocks) > 0 && len(c.Blocks) < full:
		return bad("len(AnswerBlocks)", len(c.AnswerBlocks), "none where Blocks is not whole")
	case len(c.AnswerBlocks) > both-full:
		return bad("len(AnswerBlocks)", len(c.AnswerBlocks), fmt.Sprintf("at most %d, the full blocks behind Blocks", both-full))
	}
	return nil
}
