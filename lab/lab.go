// Package lab is pure and stands over all layers: named experiments, one a file. Each has
// the article's own settings as its defaults, and gives tables and a verdict on every
// claim that it can check: ours equals the article's figure, the claim holds, or it does not.
//
// A run is decided by the lab, its settings and the number of seeds; it gives the same
// bytes on every platform.
package lab

import (
	"errors"
	"fmt"
	"strings"
)

// MaxSeeds bounds how often a lab is repeated.
const MaxSeeds = 1000

// DefaultSeeds is how often a seeded lab is repeated where nothing else is asked for and it
// says nothing else itself.
const DefaultSeeds = 20

// Lab is an experiment. Labs are values of Catalog; they are never changed.
type Lab struct {
	Name    string // kebab-case
	Title   string
	Section string   // of the article
	About   string   // what is computed or played, and what was chosen where the article is silent
	Look    []string // what to look at in the tables and plots, and which setting to turn; a sentence or two each
	Seeded  bool     // something is drawn at random: figures are means over seeds
	Traced  bool     // it can be run on a trace of one's own

	repeats  int               // DefaultSeeds of this lab; 0: as of all
	settings func() experiment // with the article's settings
}

// DefaultSeeds returns how often the lab is repeated where nothing else is asked for; 0 where
// nothing is drawn.
func (l Lab) DefaultSeeds() int {
	switch {
	case !l.Seeded:
		return 0
	case l.repeats > 0:
		return l.repeats
	}
	return DefaultSeeds
}

// experiment is a lab's settings and what is done with them. Seeds count from 1.
type experiment interface {
	params() []Param
	run(seeds int) Findings
}

// traced is an experiment that can be run on a trace: open reads it before run. The error
// names the trace's line.
type traced interface {
	experiment
	open(t *Trace) error
}

// Findings are what a run gives beside its settings.
type Findings struct {
	Tables  []Table  `json:"tables"`
	Plots   []Plot   `json:"plots"`
	Players []Player `json:"players"`

	// Verdicts are given for the article's own settings alone: of others it says nothing.
	Verdicts []Verdict `json:"verdicts"`
}

// Params returns the lab's settings in the order of its documentation.
func (l Lab) Params() []Param { return l.settings().params() }

// Setting is a setting's name and value, both as on the command line.
type Setting struct{ Key, Value string }

// Result is what a run gives.
type Result struct {
	Lab      string         `json:"lab"`
	Title    string         `json:"title"`
	Section  string         `json:"section"`
	Settings map[string]any `json:"settings"`
	Seeds    int            `json:"seeds"`           // 0: nothing is drawn
	Trace    string         `json:"trace,omitempty"` // the name of the one that was given
	Findings

	params  []Param // with the values of this run
	changed bool    // a setting is not the article's
}

// Options say how a lab is run.
type Options struct {
	Settings []Setting // those that are not named have the article's values
	Seeds    int       // counts for seeded labs alone, and must be 1 to MaxSeeds there
	Trace    *Trace    // for traced labs alone; nil: the lab's own

	// Stopped, where set, is asked now and then, by seeded labs, whether to give up; the run
	// then ends with ErrStopped.
	Stopped func() bool
}

// Run plays the lab. The error has every setting that is wrong, up to ten, and the number
// of further ones; each is a SettingError, but for a name that is given twice.
func (l Lab) Run(o Options) (*Result, error) {
	x := l.settings()
	params := x.params()
	if err := assign(l.Name, params, o.Settings); err != nil {
		return nil, err
	}
	r := &Result{Lab: l.Name, Title: l.Title, Section: l.Section, Settings: map[string]any{}, params: params}
	for _, p := range params {
		r.Settings[p.Key] = p.jsonValue()
		r.changed = r.changed || p.text() != p.Default
	}
	if l.Seeded {
		if o.Seeds < 1 || o.Seeds > MaxSeeds {
			return nil, fmt.Errorf("seeds is %d; allowed: 1 to %d", o.Seeds, MaxSeeds)
		}
		r.Seeds = o.Seeds
	}
	if o.Trace != nil {
		t, ok := x.(traced)
		if !ok {
			return nil, fmt.Errorf("%s takes no trace", l.Name)
		}
		if err := t.open(o.Trace); err != nil {
			return nil, err
		}
		r.Trace, r.changed = o.Trace.Name, true
	}
	var err error
	if r.Findings, err = play(x, &o, r.Seeds); err != nil {
		return nil, err
	}
	if r.changed || r.Verdicts == nil {
		r.Verdicts = []Verdict{}
	}
	if r.Plots == nil { // a list in JSON, whatever its length
		r.Plots = []Plot{}
	}
	if r.Players == nil {
		r.Players = []Player{}
	}
	return r, nil
}

// Failures returns the verdicts by which the article's claim does not hold.
func (r *Result) Failures() []Verdict {
	var failed []Verdict
	for _, v := range r.Verdicts {
		if v.Outcome == DoesNotHold {
			failed = append(failed, v)
		}
	}
	return failed
}

// Catalog returns every lab, in the order of the article's sections. It is the only list.
func Catalog() []Lab {
	return []Lab{
		kneeLab(),
		capacityLab(),
		choicesLab(),
		routingLab(),
		duelLab(),
		weightsLab(),
		prefillSavingLab(),
		kvCostLab(),
		freshnessLab(),
		prefixLab(),
		engineLab(),
		specDecodingLab(),
		amplificationLab(),
		hedgingLab(),
		overloadLab(),
		metastableLab(),
		fairnessLab(),
		fanOutLab(),
		cascadeLab(),
		newcomerLab(),
		unitOfWorkLab(),
		isolationLab(),
		openLoopLab(),
		canaryLab(),
		resultsLab(),
	}
}

// Lookup returns the lab of that name, or an error that lists the names.
func Lookup(name string) (Lab, error) {
	var names []string
	for _, l := range Catalog() {
		if l.Name == name {
			return l, nil
		}
		names = append(names, l.Name)
	}
	return Lab{}, fmt.Errorf("there is no lab %q; there are: %s", name, strings.Join(names, ", "))
}

// namedErrors is how many wrong settings are named at the most.
const namedErrors = 10

// assign gives the params the values of the settings. Of many that are wrong the error counts those
// behind the first ones.
func assign(lab string, params []Param, settings []Setting) error {
	var errs []error
	given := map[string]bool{}
	for _, s := range settings {
		if given[s.Key] {
			errs = append(errs, fmt.Errorf("%s: %s is set twice", lab, s.Key))
			continue
		}
		given[s.Key] = true
		if err := assignOne(lab, params, s); err != nil {
			errs = append(errs, err)
		}
	}
	if more := len(errs) - namedErrors; more > 0 {
		errs = append(errs[:namedErrors], fmt.Errorf("%s: %d further settings are wrong", lab, more))
	}
	return errors.Join(errs...)
}

func assignOne(lab string, params []Param, s Setting) error {
	var keys []string
	for _, p := range params {
		if p.Key != s.Key {
			keys = append(keys, p.Key)
			continue
		}
		if !p.set(s.Value) {
			return &SettingError{lab, s.Key, s.Value, p.Allowed()}
		}
		return nil
	}
	return &SettingError{lab, s.Key, s.Value, "one of the settings " + strings.Join(keys, ", ")}
}
