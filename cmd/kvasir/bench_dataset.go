package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"kvasir/client/workload"
	"kvasir/internal/kvblock"
	"kvasir/internal/seed"
)

// dataset is a workload for kvasir bench.
type dataset struct {
	workload.Source
	calls int  // in all; 0: not known
	timed bool // its sessions have instants of their own
	turns bool // its sessions may have more than one call
}

// datasetNames lists what --dataset-name may be without a file.
const datasetNames = "random, prefix_repetition, generated-shared-prefix"

// chooseDataset is the one place where a workload is chosen, by --dataset-name. What reading
// it leaves out is said on w.
func chooseDataset(o *benchOptions, w io.Writer) (dataset, error) {
	if format, ok := traceFormat(o.datasetName); ok {
		return openTraceDataset(o, format, w)
	}
	h := &o.random
	switch o.datasetName {
	case "random":
	case "prefix_repetition":
		h = &o.repetition
	case "generated-shared-prefix", "gsp":
		h = &o.shared
		o.numPrompts = min(o.numPrompts, h.groups*h.perGroup*h.turns)
	default:
		return dataset{}, fmt.Errorf("--dataset-name is %q; allowed: %s; with --dataset-path %s", o.datasetName, datasetNames, traceDatasets())
	}
	if o.datasetPath != "" {
		return dataset{}, fmt.Errorf("--dataset-path is given, but --dataset-name %s reads no file", o.datasetName)
	}
	h.seed, h.calls = o.seed, o.numPrompts
	if err := h.validate(); err != nil {
		return dataset{}, err
	}
	return dataset{
		Source: workload.Source{Name: o.datasetName, BlockTokens: headBlock, Sessions: h.sessions},
		calls:  o.numPrompts, turns: h.turns > 1,
	}, nil
}

// heads makes prompts that share their heads in groups: vLLM's random (one group) and
// prefix_repetition, SGLang's generated-shared-prefix.
type heads struct {
	flags headFlags // for messages

	groups   int     // of prompts that share a head
	perGroup int     // prompts that the flags ask for of each; 0: as many as there are calls
	head     int     // tokens of the head
	tail     int     // tokens behind it, each turn
	answer   int     // tokens of an answer
	spread   float64 // tail and answer vary uniformly by this part of them, up and down
	turns    int     // calls of a session
	ordered  bool    // group after group, not shuffled
	zipf     float64 // group k is chosen with weight 1/k^zipf; 0: each as often as the others

	seed  uint64
	calls int
}

// headFlags are the flags that set the fields of heads.
type headFlags struct{ groups, perGroup, head, tail, answer, spread, turns, zipf string }

// headBlock is how many tokens a block of these workloads has.
const headBlock = 16

func (h *heads) validate() error {
	var errs []error
	check := func(flag string, ok bool, value any, allowed string) {
		if !ok {
			errs = append(errs, fmt.Errorf("--%s is %v; allowed: %s", flag, value, allowed))
		}
	}
	const most = 1 << 24 // tokens
	check(h.flags.head, h.head >= 0 && h.head <= most, h.head, "0 to 16777216 tokens")
	check(h.flags.tail, h.tail >= 1 && h.tail <= most, h.tail, "1 to 16777216 tokens")
	check(h.flags.answer, h.answer >= 1 && h.answer <= most, h.answer, "1 to 16777216 tokens")
	check(h.flags.groups, h.groups >= 1 && h.groups <= 1<<20, h.groups, "1 to 1048576")
	check(h.flags.perGroup, h.perGroup >= 1 && h.perGroup <= 1<<20 || h.flags.perGroup == "", h.perGroup, "1 to 1048576")
	check(h.flags.spread, h.spread >= 0 && h.spread < 1, h.spread, "0 or more, below 1")
	check(h.flags.turns, h.turns >= 1 && h.turns <= 1000, h.turns, "1 to 1000")
	check(h.flags.zipf, h.zipf >= 0 && h.zipf <= 100, h.zipf, "0 to 100")
	return errors.Join(errs...)
}

// Streams of draws of these workloads, beside those of workload.Conversations.
const (
	headLengths = 1<<42 + iota
	headGroups
	headBlocks
	tailBlocks
)

// sessions yields the sessions, without instants.
func (h *heads) sessions(yield func(workload.Session, error) bool) {
	shared := make([][]kvblock.Hash, h.groups) // each made when it is first needed
	group := h.grouping()
	for n := 0; n*h.turns < h.calls; n++ {
		g := group(n)
		if shared[g] == nil {
			shared[g] = h.blocks(nil, h.head/headBlock, headBlocks, g)
		}
		if !yield(h.session(n, shared[g]), nil) {
			return
		}
	}
}

// session returns the n-th session, whose prompts begin with the blocks given.
func (h *heads) session(n int, head []kvblock.Hash) workload.Session {
	r := seed.New(h.seed, seed.Workload, uint64(n), headLengths)
	s := workload.Session{ID: fmt.Sprint(n)}
	tokens := h.head
	chain := head
	for turn := range h.turns {
		c := workload.Call{PromptTokens: tokens + h.length(&r, h.tail), OutputTokens: h.length(&r, h.answer), Blocks: head}
		tokens = c.PromptTokens + c.OutputTokens
		if turn > 0 {
			c.After = []int{turn - 1}
		}
		if h.turns > 1 { // a next turn finds all that was said
			chain = h.blocks(chain[:len(chain):len(chain)], tokens/headBlock, tailBlocks, n)
			full := c.PromptTokens / headBlock
			c.Blocks, c.AnswerBlocks = chain[:full:full], chain[full:]
		}
		s.Calls = append(s.Calls, c)
	}
	return s
}

// blocks extends a chain to n blocks.
func (h *heads) blocks(chain []kvblock.Hash, n int, purpose uint64, of int) []kvblock.Hash {
	for i := len(chain); i < n; i++ {
		r := seed.New(h.seed, seed.Workload, uint64(of)<<32+uint64(i), purpose)
		chain = append(chain, kvblock.Hash(r.Uint64()))
	}
	return chain
}

// length draws a length.
func (h *heads) length(r *seed.Rand, mean int) int {
	low, high := int(math.Floor(float64(mean)*(1-h.spread))), int(math.Ceil(float64(mean)*(1+h.spread)))
	return max(low+r.Intn(high-low+1), 1)
}

// grouping returns the group of each session. Where all are as frequent, each row of as many
// sessions as there are groups has every group once: no remainder is dropped.
func (h *heads) grouping() func(n int) int {
	sessions := (h.calls + h.turns - 1) / h.turns
	switch {
	case h.zipf > 0:
		sums := make([]float64, h.groups)
		sum := 0.0
		for k := range sums {
			sum += math.Pow(float64(k+1), -h.zipf)
			sums[k] = sum
		}
		return func(n int) int {
			r := seed.New(h.seed, seed.Workload, uint64(n), headGroups)
			at, g := r.Float64()*sum, 0
			for g < h.groups-1 && sums[g] <= at {
				g++
			}
			return g
		}
	case h.ordered:
		each := max((sessions+h.groups-1)/h.groups, 1)
		return func(n int) int { return n / each }
	}
	order := make([]int, h.groups)
	for i := range order {
		order[i] = i
	}
	return func(n int) int {
		if n%h.groups == 0 {
			r := seed.New(h.seed, seed.Workload, uint64(n), headGroups)
			for i := range order {
				j := i + r.Intn(h.groups-i)
				order[i], order[j] = order[j], order[i]
			}
		}
		return order[n%h.groups]
	}
}

// describe says what is asked, in words.
func (o *benchOptions) describe(d dataset) string {
	words := []string{d.Name}
	if o.datasetPath != "" {
		words = append(words, o.datasetPath)
	}
	return strings.Join(words, " ")
}
