package trace

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"kvasir/client/workload"
)

// Format is how a file writes a trace down.
type Format string

// The formats.
const (
	Auto     Format = ""         // found out by the first record
	Kvasir   Format = "kvasir"   // Kvasir's own, see docs/traces.md
	Mooncake Format = "mooncake" // JSONL with hash ids, also vLLM's timed_trace and AIPerf's mooncake_trace
	Bailian  Format = "bailian"  // JSONL of Qwen-Bailian: hash ids of 16 tokens, chats that go on
	Azure    Format = "azure"    // CSV of Azure's LLM inference traces, 2023 and 2024
	BurstGPT Format = "burstgpt" // CSV of BurstGPT, with or without sessions
	Agents   Format = "agents"   // JSONL of agent sessions of kv-cache-tester
	ShareGPT Format = "sharegpt" // JSON or JSONL of conversations, as text
	Prompts  Format = "prompts"  // JSONL of prompts as text: vLLM's custom, AIPerf's single_turn and multi_turn
	OTel     Format = "otel"     // JSON of OpenTelemetry spans of inference-perf
	VLLMLog  Format = "vllm-log" // JSONL of requests that a vLLM server has served
)

// format is what is known of one.
type format struct {
	name        Format
	about       string
	detect      func(first []byte) bool // by the first record
	blockTokens int                     // 0: the file says it, or there are none
	unit        time.Duration
	rate        float64 // of sessions a second, where they have no times
	grouped     bool    // several lines may be one session

	text bool // token counts are estimates

	// Of these a format has one: how a record becomes calls, or how it becomes a session.
	rows     func(*settings) parseRows
	sessions func(*settings) parseSession

	// prepare, of a format with sessions, takes from the first record what holds for all.
	prepare func(s *settings, first []byte) error
}

// open returns a file of this format as a trace.
func (f *format) open(file File, o Options, h head) (*Trace, error) {
	if err := f.suits(&o); err != nil {
		return nil, fmt.Errorf("%s: %w", file.Name, err)
	}
	s := settle(o, f)
	s.source = baseName(file.Name)
	if f.rows != nil {
		p, err := f.probe(s, h)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file.Name, err)
		}
		s.bin, s.untimed = p.bin, !p.timed
	} else if err := f.prepare(&s, h.first); err != nil {
		return nil, &RecordError{File: file.Name, Line: 1, Err: err}
	}
	if !s.untimed && o.SessionRate > 0 {
		return nil, fmt.Errorf("%s: %w", file.Name, &OptionError{Field: "SessionRate", Value: o.SessionRate, Allowed: "none, for the file has times"})
	}
	t := &Trace{Format: f.name, Bin: s.bin, Spread: s.spread, Timed: !s.untimed && s.drawn == 0, Estimated: s.estimated}
	if t.SessionRate = s.drawn; s.untimed {
		t.SessionRate = s.rate
	}
	t.Source = workload.Source{Name: s.source, BlockTokens: s.blockTokens}
	t.Sessions = func(yield func(workload.Session, error) bool) { f.play(file, s, yield) }
	return t, nil
}

// baseName returns the last part of a file's name: where a trace lay is nobody's business
// who gets a copy of it.
func baseName(name string) string { return name[strings.LastIndexAny(name, `/\`)+1:] }

// suits says which option is set that means nothing for the format.
func (f *format) suits(o *Options) error {
	none := "none, for the format is " + string(f.name)
	switch {
	case o.BlockTokens > 0 && f.blockTokens == 0:
		return &OptionError{Field: "BlockTokens", Value: o.BlockTokens, Allowed: none}
	case o.TimeUnit > 0 && f.unit == 0:
		return &OptionError{Field: "TimeUnit", Value: o.TimeUnit, Allowed: none}
	case o.Bin > 0 && f.rows == nil:
		return &OptionError{Field: "Bin", Value: o.Bin, Allowed: none}
	}
	return nil
}

// formats is all of them, in the order in which they are tried.
func formats() []format {
	return []format{
		kvasirFormat(), bailianFormat(), mooncakeFormat(), agentsFormat(), vllmLogFormat(),
		azureFormat(), burstGPTFormat(), shareGPTFormat(), promptsFormat(), otelFormat(),
	}
}

func formatOf(name Format) *format {
	for _, f := range formats() {
		if f.name == name {
			return &f
		}
	}
	return nil
}

// Names returns the names of the formats, in the order in which Detect tries them.
func Names() []string {
	var names []string
	for _, f := range formats() {
		names = append(names, string(f.name))
	}
	return names
}

// Describe returns a line for each format: its name and what it is.
func Describe() string {
	var b strings.Builder
	for _, f := range formats() {
		fmt.Fprintf(&b, "  %-9s %s\n", f.name, f.about)
	}
	return b.String()
}

// Detect returns the format of a file by its first record.
func Detect(first []byte) (Format, error) {
	for _, f := range formats() {
		if f.detect(first) {
			return f.name, nil
		}
	}
	if err := tooDeep(first); err != nil {
		return Auto, fmt.Errorf("the format is not known: of the first record %w", err)
	}
	return Auto, fmt.Errorf("the format is not known: the first record begins with %s; formats: %s",
		excerpt(first), strings.Join(Names(), ", "))
}

// head is what a file begins with.
type head struct {
	first []byte
	rest  [][]byte // the records after it, as many as are looked at
}

// What readHead reads at most.
const (
	headRecords = 1000
	headBytes   = 4 << 20
)

// readHead reads the first records of a file.
func readHead(f File) (head, error) {
	r, err := f.Open()
	if err != nil {
		return head{}, err
	}
	defer r.Close()
	var h head
	s := newRecords(r)
	for size := 0; len(h.rest) < headRecords && size < headBytes; {
		b, err := s.next()
		switch {
		case err == nil && h.first == nil:
			h.first = bytes.Clone(b)
		case err == nil:
			h.rest = append(h.rest, bytes.Clone(b))
		case h.first != nil:
			return h, nil // the pass will say what is wrong
		case errors.Is(err, io.EOF):
			return h, fmt.Errorf("%s: the file is empty", f.Name)
		default:
			line := s.line
			if errors.Is(err, errTooLong) {
				line = s.start
			}
			return h, &RecordError{File: f.Name, Line: line, Err: err}
		}
		size += len(b)
	}
	return h, nil
}

// fields returns the names that a JSON object has at its top, or nil where the record is
// none. Only names are looked at that a detection asks for, so a few are enough.
func fields(record []byte) map[string]bool {
	var s scanner
	s.reset(record)
	if s.peek() != '{' {
		return nil
	}
	names := map[string]bool{}
	for s.open('{'); s.more('}'); {
		if len(names) < 1000 {
			names[string(s.name)] = true
		}
		s.skip()
	}
	if s.end(); s.err != nil {
		return nil
	}
	return names
}

// tooDeep returns what is wrong with a JSON record that is nested deeper than it may be.
func tooDeep(record []byte) error {
	var s scanner
	s.reset(record)
	if s.skip(); errors.Is(s.err, errDeep) {
		return s.err
	}
	return nil
}

// hasFields returns a detection by names that must be there.
func hasFields(all ...string) func([]byte) bool {
	return func(first []byte) bool {
		names := fields(first)
		for _, f := range all {
			if !names[f] {
				return false
			}
		}
		return true
	}
}
