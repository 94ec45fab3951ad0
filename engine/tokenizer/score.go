package tokenizer

import (
	"encoding/json"
	"strings"
	"unicode"
)

// Pair is two texts whose likeness is asked for.
type Pair struct{ Query, Document string }

// Score returns how alike the pair's texts are, 0 to 1: the share of the query's words that
// the document has, each counted as often as it comes in both. It stands for a
// cross-encoder's score: it depends on the texts alone, a document that repeats the query
// gets 1, and one that has no word of it 0.
func (p Pair) Score() float64 {
	query := words(p.Query)
	if len(query) == 0 {
		return 0
	}
	held := map[string]int{}
	for _, w := range words(p.Document) {
		held[w]++
	}
	found := 0
	for _, w := range query {
		if held[w] > 0 {
			held[w]--
			found++
		}
	}
	return float64(found) / float64(len(query))
}

// words returns the runs of letters and digits of a text, in lower case.
func words(s string) []string {
	return strings.FieldsFunc(strings.ToLower(s), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
}

// scoreFields lists the names by which score calls give their texts.
var scoreFields = [][2]string{{"queries", "documents"}, {"queries", "items"}, {"data_1", "data_2"}, {"text_1", "text_2"}}

// readPairs reads the texts of a score or rerank call.
func (r *reader) readPairs() ([]prompt, error) {
	fields := [2]string{"query", "documents"}
	if r.call.Route == Rerank {
		r.call.TopN, _ = r.number("top_n")
		if r.call.TopN < 0 {
			r.fail("greater_than_equal", "Input should be greater than or equal to 0", "top_n")
		}
	} else {
		fields = scoreFields[0]
		for _, f := range scoreFields {
			_, one := r.raw(f[0])
			_, two := r.raw(f[1])
			if one && two {
				fields = f
				break
			}
		}
	}
	queries, documents := r.texts(fields[0]), r.texts(fields[1])
	switch {
	case len(*r.faults) > 0:
		return nil, nil
	case len(queries) == 0:
		return nil, badRequest("", "At least one text element must be given")
	case len(documents) == 0:
		return nil, badRequest("", "At least one text_pair element must be given")
	case len(queries) > 1 && len(queries) != len(documents):
		return nil, badRequest("", "Input lengths must be either 1:1, 1:N or N:N")
	}
	var prompts []prompt
	for i, d := range documents {
		p := Pair{queries[min(i, len(queries)-1)], d}
		r.call.Pairs = append(r.call.Pairs, p)
		prompts = append(prompts, pairPrompt(p))
	}
	return prompts, nil
}

// texts reads a text or a list of texts.
func (r *reader) texts(name string) []string {
	raw, ok := r.raw(name)
	if !ok {
		r.fail("missing", "Field required", name)
		return nil
	}
	if s, ok := r.scored(raw, name); ok {
		return []string{s}
	}
	elements, ok := array(raw)
	if !ok {
		r.fail("string_type", "Input should be a valid string", name)
		return nil
	}
	var all []string
	for i, e := range elements {
		s, ok := r.scored(e, name, i)
		if !ok {
			r.fail("string_type", "Input should be a valid string", name, i)
			return nil
		}
		all = append(all, s)
	}
	return all
}

// scored reads one text: a string, or an object with text parts.
func (r *reader) scored(raw json.RawMessage, at ...any) (string, bool) {
	if s, ok := text(raw); ok {
		return s, true
	}
	if raw[0] != '{' {
		return "", false
	}
	return systemText(r.child(raw, at...), "content"), true
}

// pairPrompt is the prompt of a cross-encoder: both texts, each ended.
func pairPrompt(p Pair) prompt {
	return func(e *encoder) {
		e.id(beginOfText)
		e.text(p.Query)
		e.id(endOfTurn)
		e.text(p.Document)
		e.id(endOfTurn)
	}
}
