package main

import (
	"fmt"

	"kvasir/accelerator"
	"kvasir/engine"
	"kvasir/internal/queueing"
)

// profileFlags are those that a profile stands in for.
var profileFlags = []string{"places", "prefill-rate", "tpot"}

// planProfile is what a plan has from a cost model, because nobody has measured it.
type planProfile struct {
	Name    string       `json:"name"`
	Assumed []assumption `json:"assumed"`
}

// assumption is one number and how it comes about.
type assumption struct {
	What    string `json:"flag"`
	Formula string `json:"formula"`
	value   string
}

// fillPool fills what the flags have not given from the profile of that name, as an engine
// with its defaults would have it:
//
//   - places: as many calls as the KV blocks hold at their full length, nothing shared, at most
//     the engine's bound on sequences;
//   - prefill rate: a step that computes nothing but one prompt's first tokens, as many as a
//     step may have, over its time;
//   - TPOT: the time of a step in which all places decode, each with its prompt and half of its
//     answer as context.
//
// The host's time for a step is in both. A prefill beside the decodes would make the TPOT
// longer, and a batch that is not full makes it shorter.
func fillPool(p *queueing.Pool, name string, given map[string]bool) (*planProfile, error) {
	profile, err := accelerator.Lookup(name)
	if err != nil {
		return nil, err
	}
	if !(p.PromptTokens >= 1 && p.PromptTokens <= 1e8 && p.OutputTokens >= 1 && p.OutputTokens <= 1e8) {
		return nil, nil // which is reported anyway
	}
	out := &planProfile{Name: profile.Name, Assumed: []assumption{}}
	assume := func(flag, value, formula string, args ...any) {
		out.Assumed = append(out.Assumed, assumption{"--" + flag, fmt.Sprintf(formula, args...), value})
	}
	cost := profile.Cost(engine.DefaultOverhead, 1)
	if !given["places"] {
		held := float64(profile.KVBlocks*accelerator.BlockTokens) / (p.PromptTokens + p.OutputTokens)
		if held < 1 {
			return nil, fmt.Errorf("%s holds %d tokens; allowed: prompts and answers of so many together", profile.Name, profile.KVBlocks*accelerator.BlockTokens)
		}
		p.Places = min(int(held), profile.MaxSeqs, queueing.MaxPlaces)
		assume("places", fmt.Sprint(p.Places), "min(%d sequences, %d KV blocks of %d tokens / (prompt + output)), nothing shared",
			profile.MaxSeqs, profile.KVBlocks, accelerator.BlockTokens)
	}
	if !given["prefill-rate"] {
		budget := profile.MaxBatchedTokens
		step := cost.Step(accelerator.Batch{Tokens: budget, Prefills: []accelerator.Prefill{{Chunk: budget}}}).Duration()
		p.PrefillRate = float64(budget) / step.Seconds()
		assume("prefill-rate", short(p.PrefillRate)+" tokens/s", "%d tokens, a step's budget, over a step that computes them alone (%v, of which %v host)", budget, step, engine.DefaultOverhead)
	}
	if !given["tpot"] {
		places := max(p.Places, 1)
		context := int64(p.PromptTokens + p.OutputTokens/2)
		step := cost.Step(accelerator.Batch{Tokens: places, Decodes: places, DecodeContext: int64(places) * context}).Duration()
		p.TPOT = step.Seconds()
		assume("tpot", seconds(p.TPOT), "a step in which %d calls decode, each with prompt + output/2 = %d tokens of context (of which %v host)", places, context, engine.DefaultOverhead)
	}
	return out, nil
}
