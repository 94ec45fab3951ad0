package main

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"strconv"

	"kvasir/engine"
	"kvasir/internal/mono"
	"kvasir/sim"
)

// csvFile is the CSV of --timeline or of --calls. It keeps its first error for close, which
// does nothing on a nil one.
type csvFile struct {
	file *os.File
	out  *bufio.Writer
	line []byte
	err  error
}

func createTimeline(name string) (*csvFile, error) {
	return createCSV(name, "time_s,engine,running,waiting,kv_usage,preemptions,prompt_tokens,generation_tokens,prefix_queries,prefix_hits")
}

func createCSV(name, head string) (*csvFile, error) {
	f, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	t := &csvFile{file: f, out: bufio.NewWriter(f)}
	_, t.err = fmt.Fprintln(t.out, head)
	return t, nil
}

// sample writes what an engine reports: gauges as they are, counters since its start.
func (t *csvFile) sample(e int, now mono.Time, s *engine.Stats) {
	if t.err != nil {
		return
	}
	b := strconv.AppendFloat(t.line[:0], float64(now)/1e9, 'f', 3, 64)
	for _, n := range []int64{int64(e + 1), int64(s.Running), int64(s.Waiting)} {
		b = strconv.AppendInt(append(b, ','), n, 10)
	}
	b = strconv.AppendFloat(append(b, ','), s.KVUsage, 'f', 4, 64)
	for _, n := range []int64{s.Preemptions, s.PromptTokens, s.GenerationTokens, s.PrefixQueries, s.PrefixHits} {
		b = strconv.AppendInt(append(b, ','), n, 10)
	}
	t.line = append(b, '\n')
	_, t.err = t.out.Write(t.line)
}

func createCalls(name string) (*csvFile, error) {
	return createCSV(name, "session,class,call,came_s,engine,ttft_s,e2e_s,prompt_tokens,cached_tokens,output_tokens,attempts,outcome")
}

// call writes what became of a call; a time that it has not is empty.
func (t *csvFile) call(s *sim.SessionRecord, number int, r *sim.Record) {
	if t.err != nil {
		return
	}
	outcome, first := r.Outcome.String(), ""
	if why := r.Unfinished(); why != "" {
		outcome = why
	}
	if r.First != 0 {
		first = strconv.FormatFloat(r.First.Sub(r.At).Seconds(), 'f', 6, 64)
	}
	t.err = csv.NewWriter(t.out).WriteAll([][]string{{
		s.ID, s.Class, strconv.Itoa(number + 1), strconv.FormatFloat(float64(r.At)/1e9, 'f', 6, 64), strconv.Itoa(r.Engine + 1), first,
		strconv.FormatFloat(r.End.Sub(r.At).Seconds(), 'f', 6, 64), strconv.Itoa(r.Prompt), strconv.Itoa(r.Cached), strconv.Itoa(r.Tokens), strconv.Itoa(r.Attempts), outcome,
	}})
}

func (t *csvFile) close() error {
	if t == nil {
		return nil
	}
	return errors.Join(t.err, t.out.Flush(), t.file.Close())
}
