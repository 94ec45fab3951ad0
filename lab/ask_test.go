package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// TestAnswer_SaysShortlyThatSettingsAreUnknown: it names ten and counts the others.
func TestAnswer_SaysShortlyThatSettingsAreUnknown(t *testing.T) {
	settings := map[string]string{}
	for i := range 20_000 {
		settings[fmt.Sprintf("%05d", i)] = ""
	}
	question, _ := json.Marshal(Asked{Lab: "hedging", Settings: settings})
	_, err := Answer(question, nil)
	if err == nil || len(err.Error()) > longestError+10 {
		t.Fatalf("a question of %d bytes is refused with %v", len(question), err)
	}
	_, err = hedgingLab().Run(Options{Settings: []Setting{{"a", ""}, {"b", ""}, {"c", ""}, {"d", ""}, {"e", ""}, {"f", ""}, {"g", ""}, {"h", ""}, {"i", ""}, {"j", ""}, {"k", ""}, {"calls", "x"}}, Seeds: 1})
	if err == nil || strings.Count(err.Error(), "\n") != namedErrors || !strings.HasSuffix(err.Error(), "hedging: 2 further settings are wrong") || !strings.Contains(err.Error(), "hedging: j is") {
		t.Errorf("got %v", err)
	}
}

// TestAnswer_OfALongWordIsShort, wherever that stands.
func TestAnswer_OfALongWordIsShort(t *testing.T) {
	long := strings.Repeat("ü", 1<<20)
	for _, q := range []Asked{
		{Lab: long}, {Lab: "hedging", Settings: map[string]string{"calls": long}}, {Lab: "hedging", Settings: map[string]string{long: "1"}}, {Lab: "knee", Trace: &Trace{Name: long}},
	} {
		question, _ := json.Marshal(q)
		if _, err := Answer(question, nil); err == nil || len(err.Error()) > longestError+10 || !strings.HasSuffix(err.Error(), " …") {
			t.Errorf("%.60s: an error of %d bytes", question, len(err.Error()))
		}
	}
}

// TestAnswer_BoundsSeeds by lab, as the list says.
func TestAnswer_BoundsSeeds(t *testing.T) {
	want := map[string]int{"duel": 32, "results": 20, "routing": 100, "knee": 0}
	for _, l := range List() {
		if most, ok := want[l.Name]; ok && l.Most != most {
			t.Errorf("%s: %d, want %d", l.Name, l.Most, most)
		}
		if (l.Most == 0) == l.Seeded || l.Most < l.Seeds || l.Most > maxAskedSeeds {
			t.Errorf("%s: %d seeds at most, %d by default", l.Name, l.Most, l.Seeds)
		}
		if !l.Seeded {
			continue
		}
		never := func() bool { return true }
		_, err := Answer(fmt.Appendf(nil, `{"lab":%q,"seeds":%d}`, l.Name, l.Most+1), never)
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("seeds is %d; a page may ask %s for 1 to %d", l.Most+1, l.Name, l.Most)) {
			t.Errorf("%s: %v", l.Name, err)
		}
		if _, err := Answer(fmt.Appendf(nil, `{"lab":%q,"seeds":%d}`, l.Name, l.Most), never); !errors.Is(err, ErrStopped) {
			t.Errorf("%s: %d seeds are not played: %v", l.Name, l.Most, err)
		}
	}
}
