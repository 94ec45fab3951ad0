package lab

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// A page asks in JSON and is answered in JSON, by the same functions over a socket and in a
// browser, so that both give the same bytes.

// MaxAsked bounds a question, its trace included.
const MaxAsked = 16 << 20

// maxAskedSeeds bounds how often a lab is repeated for a page, which waits for it, where the lab
// says nothing itself.
const maxAskedSeeds = 100

// MaxAskedSeeds returns how often the lab is repeated for a page at most; 0 where nothing is
// drawn. A lab that is repeated less often by default, since it takes long, may be asked for four
// times that.
func (l Lab) MaxAskedSeeds() int {
	switch {
	case !l.Seeded:
		return 0
	case l.repeats > 0:
		return min(4*l.repeats, maxAskedSeeds)
	}
	return maxAskedSeeds
}

// longestError bounds what is said of a question, in bytes: a question may be as long as MaxAsked.
const longestError = 2000

// Asked is the question: which lab, and how it is run.
type Asked struct {
	Lab      string            `json:"lab"`
	Settings map[string]string `json:"settings"` // as on the command line
	Seeds    int               `json:"seeds"`    // 0: the lab's own number
	Trace    *Trace            `json:"trace"`
}

// Answer runs what is asked for and returns its Result. stopped is Options.Stopped. The error
// says what is wrong with the question, or is ErrStopped.
func Answer(question []byte, stopped func() bool) ([]byte, error) {
	answer, err := answerTo(question, stopped)
	if err != nil && len(err.Error()) > longestError {
		err = errors.New(strings.ToValidUTF8(err.Error()[:longestError], "") + " …")
	}
	return answer, err
}

func answerTo(question []byte, stopped func() bool) ([]byte, error) {
	if len(question) > MaxAsked {
		return nil, fmt.Errorf("the question has %d bytes; allowed: %d", len(question), MaxAsked)
	}
	var q Asked
	d := json.NewDecoder(bytes.NewReader(question))
	d.DisallowUnknownFields()
	if err := d.Decode(&q); err != nil {
		return nil, fmt.Errorf("the question: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("the question: something follows its JSON object")
	}
	l, err := Lookup(q.Lab)
	if err != nil {
		return nil, err
	}
	o := Options{Seeds: q.Seeds, Trace: q.Trace, Stopped: stopped}
	if o.Seeds == 0 {
		o.Seeds = l.DefaultSeeds()
	}
	if most := l.MaxAskedSeeds(); l.Seeded && o.Seeds > most {
		return nil, fmt.Errorf("seeds is %d; a page may ask %s for 1 to %d", o.Seeds, l.Name, most)
	}
	for key, value := range q.Settings {
		o.Settings = append(o.Settings, Setting{key, value})
	}
	slices.SortFunc(o.Settings, func(a, b Setting) int { return strings.Compare(a.Key, b.Key) })
	r, err := l.Run(o)
	if err != nil {
		return nil, err
	}
	return json.Marshal(r)
}

// Listed is a lab in the list of all.
type Listed struct {
	Name    string   `json:"name"`
	Title   string   `json:"title"`
	Section string   `json:"section"`
	About   string   `json:"about"`
	Look    []string `json:"look"`
	Seeded  bool     `json:"seeded"`
	Seeds   int      `json:"seeds"`     // where nothing else is asked for; 0: nothing is drawn
	Most    int      `json:"max_seeds"` // that a page may ask for; 0: nothing is drawn
	Traced  bool     `json:"traced"`
	Params  []Param  `json:"params"`
}

// List returns the catalogue as it is shown, in its order.
func List() []Listed {
	var labs []Listed
	for _, l := range Catalog() {
		look := l.Look
		if look == nil {
			look = []string{}
		}
		labs = append(labs, Listed{l.Name, l.Title, l.Section, l.About, look, l.Seeded, l.DefaultSeeds(), l.MaxAskedSeeds(), l.Traced, l.Params()})
	}
	return labs
}

// Listing returns the list in JSON, as a page asks for it.
func Listing() ([]byte, error) {
	return json.Marshal(struct {
		Labs []Listed `json:"labs"`
	}{List()})
}
