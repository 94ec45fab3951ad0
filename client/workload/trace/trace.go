// Package trace is layer 1 (clients), pure: workloads from files. It reads the formats in
// which traces of LLM calls are published, writes and reads Kvasir's own, and says what is
// in one. Files are streams of text to it: who opens them takes off any compression.
//
// A Source that it makes may be read as often as one likes, also by several goroutines at
// once: each pass opens the file for itself and keeps its state to itself.
package trace

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"kvasir/client/workload"
)

// MaxRecord bounds a line, or an element of a JSON array: 16 MiB. A longer one is a bad
// record.
const MaxRecord = 16 << 20

// maxTokens bounds what one prompt or answer has, as engines do.
const maxTokens = 1<<31 - 1

// File is where a trace comes from.
type File struct {
	Name string                        // for messages
	Open func() (io.ReadCloser, error) // from its beginning, decompressed
}

// Options say how a file is read. The zero value reads what Detect finds, at the recorded
// times, and passes over bad records.
type Options struct {
	Format Format // Auto: found out by the file's first record

	// Strict ends a pass at the first bad record with its *RecordError. Otherwise bad records
	// are passed over and counted; see Done.
	Strict bool

	// Seed decides all draws: where in its bin a call lies, when a session without a time
	// comes.
	Seed uint64

	// BlockTokens is how many tokens a hash id of the file stands for, or in how many text is
	// cut; 0: the format's own (512 for Mooncake, 16 for Bailian and text). Agent sessions and
	// Kvasir traces say it themselves.
	BlockTokens int

	// TimeUnit is what a timestamp of 1 means; 0: the format's own (a millisecond for
	// Mooncake, a second for Bailian, BurstGPT and vLLM logs).
	TimeUnit time.Duration

	// Bin is the resolution that timestamps were rounded down to. Calls that share a
	// timestamp lie uniformly within the bin then, in their order. 0: found out by the first
	// calls, see binOf. Raw keeps all timestamps as they are.
	Bin time.Duration
	Raw bool

	// SessionRate is at how many a second sessions come, as a Poisson process, where the file
	// has no times for them; 0: 1/60 for agents, 1 for others.
	SessionRate float64

	// TokenTime is how long an answer is taken to have lasted for each of its tokens, where
	// the file does not say how long it lasted: what is left until the next call is the time
	// of the person or the tool. 0: 25 ms.
	TokenTime time.Duration

	// ThinkTime is the time from an answer to the next call of a session, where the file says
	// nothing of it: 0 means none.
	ThinkTime time.Duration

	// AnswerTokens is the length of answers of which the file says nothing; 0: 256.
	AnswerTokens int

	// Idle is the pause after which a session is over, in files where the lines of sessions
	// are mixed; a later line of the same session begins another. 0: 30 minutes. It bounds
	// what is held in memory, with maxHeld.
	Idle time.Duration

	// Done, unless nil, hears at the end of each pass what was read, also where the pass was
	// cut short. It is called by the goroutine that reads.
	Done func(Tally)
}

// Tally counts what a pass has read.
type Tally struct {
	Records  int // lines or elements, the bad ones included; empty lines and headers are none
	Sessions int
	Calls    int
	Bad      int     // records that were passed over
	First    []error // the first few of their errors, each a *RecordError
	Whole    bool    // the pass came to the end of the file
}

// firstErrors is how many errors a Tally keeps.
const firstErrors = 5

// RecordError is what is wrong with one record.
type RecordError struct {
	File string
	Line int // where the record begins, from 1
	Err  error
}

func (e *RecordError) Error() string { return fmt.Sprintf("%s:%d: %v", e.File, e.Line, e.Err) }

// Unwrap returns what is wrong.
func (e *RecordError) Unwrap() error { return e.Err }

// OptionError is a value of Options that is not allowed.
type OptionError struct {
	Field   string
	Value   any
	Allowed string
}

func (e *OptionError) Error() string {
	return fmt.Sprintf("trace: %s is %v; allowed: %s", e.Field, e.Value, e.Allowed)
}

// Validate returns every mistake, each an *OptionError, or nil.
func (o *Options) Validate() error {
	var errs []error
	bad := func(field string, value any, allowed string) {
		errs = append(errs, &OptionError{Field: field, Value: value, Allowed: allowed})
	}
	if o.Format != Auto && formatOf(o.Format) == nil {
		bad("Format", o.Format, strings.Join(Names(), ", "))
	}
	if o.BlockTokens < 0 || o.BlockTokens > maxBlockTokens {
		bad("BlockTokens", o.BlockTokens, fmt.Sprintf("1 to %d, or 0 for the format's own", maxBlockTokens))
	}
	if !(o.SessionRate >= 0 && o.SessionRate <= 1e6) {
		bad("SessionRate", o.SessionRate, "above 0, at most 1e6, or 0 for the format's own")
	}
	if o.AnswerTokens < 0 || o.AnswerTokens > maxTokens {
		bad("AnswerTokens", o.AnswerTokens, fmt.Sprintf("1 to %d, or 0 for 256", maxTokens))
	}
	for _, d := range []struct {
		field string
		value time.Duration
		most  time.Duration
	}{
		{"TimeUnit", o.TimeUnit, time.Hour},
		{"Bin", o.Bin, longestBin},
		{"TokenTime", o.TokenTime, time.Hour},
		{"ThinkTime", o.ThinkTime, 366 * 24 * time.Hour},
		{"Idle", o.Idle, 366 * 24 * time.Hour},
	} {
		if d.value < 0 || d.value > d.most {
			bad(d.field, d.value, fmt.Sprintf("above 0, at most %v, or 0 for the default", d.most))
		}
	}
	if o.Raw && o.Bin > 0 {
		bad("Bin", o.Bin, "none where Raw is set")
	}
	return errors.Join(errs...)
}

// longestBin bounds Bin.
const longestBin = 24 * time.Hour

// maxBlockTokens bounds BlockTokens.
const maxBlockTokens = 1 << 20

// Trace is a file that was recognised.
type Trace struct {
	workload.Source
	Format Format

	// Bin is within which its calls are spread; 0: they come as the file says. Spread is within
	// which they were spread before the file was written, which can't be undone.
	Bin, Spread time.Duration

	// Timed says that sessions come when the file says; otherwise at SessionRate.
	Timed       bool
	SessionRate float64

	// Estimated says that token counts come from text, at four bytes a token.
	Estimated bool
}

// Open recognises a file by its first records and returns it as a source. It reads no
// further than it must; bad records are found by a pass.
func Open(f File, o Options) (*Trace, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	head, err := readHead(f)
	if err != nil {
		return nil, err
	}
	if o.Format == Auto {
		if o.Format, err = Detect(head.first); err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
	}
	return formatOf(o.Format).open(f, o, head)
}
