package engine

import (
	"errors"
	"strings"
	"testing"
	"time"

	"kvasir/internal/kvblock"
	"kvasir/internal/mono"
)

func TestSubmit_RefusesWithATypedError(t *testing.T) {
	with := func(change func(*Request)) Request {
		q := text{family: 1, shared: 99}.request('q', 10, 6, 4)
		change(&q)
		return q
	}
	c := small()
	c.MaxModelLen, c.NumBlocks, c.MaxRequests = 60, 12, 3
	e := mustNew(t, c)
	e.Advance(100)
	mustSubmit(t, e, 100, plain(held, 1, 1))
	for _, x := range []struct {
		name  string
		at    mono.Time
		req   Request
		err   error
		words []string
	}{
		{"no prompt", 100, with(func(q *Request) { q.PromptTokens = 0 }), ErrField, []string{"PromptTokens is 0", "1 to"}},
		{"negative answer", 100, with(func(q *Request) { q.OutputTokens = -1 }), ErrField, []string{"OutputTokens is -1"}},
		{"ends as aborted", 100, with(func(q *Request) { q.Reason = Abort }), ErrField, []string{"Reason is 2", "Stop or Length"}},
		{"too many hashes", 100, with(func(q *Request) { q.Blocks = make([]kvblock.Hash, 3) }), ErrField, []string{"len(Blocks) is 3", "at most 2"}},
		{"too many answer hashes", 100, with(func(q *Request) { q.AnswerBlocks = make([]kvblock.Hash, 3) }), ErrField, []string{"len(AnswerBlocks) is 3", "at most 2"}},
		{"answer hashes after a gap", 100, with(func(q *Request) { q.Blocks = q.Blocks[:1] }), ErrField, []string{"len(AnswerBlocks) is 2", "at most 0"}},
		{"beyond the model's length", 100, plain('q', 50, 11), ErrContextLength, []string{"is 61", "at most 60"}},
		{"beyond the KV blocks", 100, plain('q', 40, 10), ErrNeverFits, []string{"KV blocks is 13", "at most 12"}},
		{"held already", 100, plain(held, 1, 1), ErrDuplicate, []string{"request 1001"}},
		{"in the past", 99, plain('q', 1, 1), ErrPast, []string{"now is 99", "100 or later"}},
		{"at no instant", mono.Never, plain('q', 1, 1), ErrField, []string{"now"}},
	} {
		t.Run(x.name, func(t *testing.T) {
			err := e.Submit(x.at, x.req)
			if !errors.Is(err, x.err) {
				t.Fatalf("%v, want %v", err, x.err)
			}
			if re, ok := errors.AsType[*RequestError](err); !ok || re.ID != x.req.ID {
				t.Errorf("%#v is no *RequestError of %d", err, x.req.ID)
			}
			for _, w := range x.words {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q does not say %q", err, w)
				}
			}
		})
	}
	// What exactly fits is taken: the last token needs no KV, so 49 tokens fill 12 blocks.
	mustSubmit(t, e, 100, plain(whole, 40, 9))
	mustSubmit(t, e, 100, with(func(q *Request) { q.Blocks, q.AnswerBlocks = q.Blocks[:1], nil }))
	if err := e.Submit(100, plain(more, 1, 1)); !errors.Is(err, ErrFull) {
		t.Errorf("%v, want %v", err, ErrFull)
	}
	if out := drain(e); len(out) != 1+9+6 {
		t.Errorf("%d outputs, want 16", len(out))
	}
	mustSubmit(t, e, e.advanced, plain(more, 1, 1)) // there is room again
}

func TestConfig_ReportsEveryMistake(t *testing.T) {
	if _, err := New(Config{}); err == nil {
		t.Error("the zero Config is accepted")
	}
	for name, x := range map[string]struct {
		spoil func(*Config)
		words []string
	}{
		"two at once":     {func(c *Config) { c.NumBlocks, c.BlockTokens = 0, -1 }, []string{"NumBlocks is 0", "BlockTokens is -1"}},
		"budget":          {func(c *Config) { c.MaxBatchedTokens = 0 }, []string{"MaxBatchedTokens is 0"}},
		"more than fits":  {func(c *Config) { c.MaxSeqs, c.MaxBatchedTokens = 9, 8 }, []string{"MaxSeqs is 9", "at most MaxBatchedTokens, 8"}},
		"no length":       {func(c *Config) { c.MaxModelLen = 0 }, []string{"MaxModelLen is 0"}},
		"no requests":     {func(c *Config) { c.MaxRequests = 0 }, []string{"MaxRequests is 0"}},
		"time goes back":  {func(c *Config) { c.Overhead = -1 }, []string{"Overhead is -1ns"}},
		"time stands":     {func(c *Config) { c.Overhead = time.Hour }, []string{"Overhead is 1h"}},
		"batching":        {func(c *Config) { c.Batching = 2 }, []string{"Batching is Batching(2)", "Continuous or Static"}},
		"static chunks":   {func(c *Config) { c.Batching = Static }, []string{"ChunkedPrefill is true", "Batching is static"}},
		"drafts nothing":  {func(c *Config) { c.Speculation.Seed = 1 }, []string{"Speculation.Drafted is 0"}},
		"drafts too much": {func(c *Config) { c.Speculation.Drafted = 65 }, []string{"Speculation.Drafted is 65", "0 to 64"}},
		"no budget":       {func(c *Config) { c.Speculation.Drafted = 8 }, []string{"MaxSeqs is 8", "at most 7: every running request takes 9 of 64"}},
		"acceptance":      {func(c *Config) { c.Speculation = Speculation{Drafted: 1, Acceptance: 1.1} }, []string{"Speculation.Acceptance is 1.1"}},
		"spread": {func(c *Config) { c.Speculation = Speculation{Drafted: 1, Acceptance: 0.75, Spread: 0.3} },
			[]string{"Speculation.Spread is 0.3", "0 to 0.25"}},
		"drafting":  {func(c *Config) { c.Speculation = Speculation{Drafted: 1, Overhead: -1} }, []string{"Speculation.Overhead is -1ns"}},
		"host":      {func(c *Config) { c.Host.Blocks = -1 }, []string{"Host.Blocks is -1"}},
		"no host":   {func(c *Config) { c.Host.Bandwidth = 1e9 }, []string{"Host.Bandwidth is 1e+09", "0 where Host.Blocks is 0"}},
		"slow host": {func(c *Config) { c.Host = HostTier{Blocks: 1, Bandwidth: 25} }, []string{"Host.Bandwidth is 25", "1e+06 bytes a second"}},
		"host uncached": {func(c *Config) { c.Host, c.PrefixCaching = HostTier{Blocks: 1, Bandwidth: 1e9}, false },
			[]string{"PrefixCaching is false"}},
		"broken profile":  {func(c *Config) { c.Profile.KVBlocks = 0 }, []string{"kv_blocks is 0"}},
		"overlong blocks": {func(c *Config) { c.NumBlocks = 1 << 40 }, []string{"NumBlocks is 1099511627776"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := small()
			x.spoil(&c)
			_, err := New(c)
			if err == nil {
				t.Fatal("no error")
			}
			for _, w := range x.words {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q does not say %q", err, w)
				}
			}
		})
	}
}

func TestConfigError_NamesItsField(t *testing.T) {
	c := small()
	c.MaxSeqs = 0
	_, err := New(c)
	if ce, ok := errors.AsType[*ConfigError](err); !ok || ce.Field != "MaxSeqs" || ce.Value != 0 {
		t.Errorf("%#v", err)
	}
}

func TestFinishReason_HasVLLMsNames(t *testing.T) {
	for r, want := range map[FinishReason]string{Stop: "stop", Length: "length", Abort: "abort", 9: "FinishReason(9)"} {
		if r.String() != want {
			t.Errorf("%d is %q, want %q", r, r, want)
		}
	}
}
