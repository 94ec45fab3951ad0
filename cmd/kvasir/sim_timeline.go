package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"

	"kvasir/engine"
	"kvasir/internal/mono"
)

// timelineFile is the CSV of --timeline. A nil one does nothing.
type timelineFile struct {
	file *os.File
	out  *bufio.Writer
	line []byte
	err  error
}

func createTimeline(name string) (*timelineFile, error) {
	f, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	t := &timelineFile{file: f, out: bufio.NewWriter(f)}
	_, t.err = fmt.Fprintln(t.out, "time_s,engine,running,waiting,kv_usage,preemptions,prompt_tokens,generation_tokens,prefix_queries,prefix_hits")
	return t, nil
}

// sample writes what an engine reports: gauges as they are, counters since its start.
func (t *timelineFile) sample(e int, now mono.Time, s *engine.Stats) {
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

func (t *timelineFile) close() error {
	if t == nil {
		return nil
	}
	return errors.Join(t.err, t.out.Flush(), t.file.Close())
}
