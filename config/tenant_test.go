package config

import (
	"reflect"
	"testing"

	"kvasir/gateway/limit"
)

// TestCaps_AreWithinWhatABookTakes: the tags of Caps are the bounds of gateway/limit.
func TestCaps_AreWithinWhatABookTakes(t *testing.T) {
	for name, most := range map[string]float64{"RPM": limit.MostRequests, "TPM": limit.MostTokens, "Burst": float64(limit.MostBurst)} {
		f, _ := reflect.TypeFor[Caps]().FieldByName(name)
		v := reflect.New(f.Type).Elem()
		for add, want := range map[int64]bool{0: true, 1: false} {
			if v.SetInt(int64(most) + add); inRange(v, f.Tag.Get("allowed")) != want {
				t.Errorf("%s: %v in %s: want %v", name, v, f.Tag.Get("allowed"), want)
			}
		}
	}
	for field := range reflect.TypeFor[Weights]().Fields() {
		tag := field.Tag.Get("allowed")
		if !inRange(reflect.ValueOf(float64(limit.MostWeight)), tag) || inRange(reflect.ValueOf(limit.MostWeight+0.5), tag) {
			t.Errorf("weights: %s, and a book takes up to %d", tag, limit.MostWeight)
		}
	}
}

// TestClasses_OneThatIsListedReplacesABuiltInOne.
func TestClasses_OneThatIsListedReplacesABuiltInOne(t *testing.T) {
	c := Config{Classes: []Class{{Name: "background", Priority: -5}, {Name: "batch", Priority: -2}}}
	want := []Class{{Name: "interactive"}, {Name: "background", Priority: -5}, {Name: "batch", Priority: -2}}
	if got := c.AllClasses(); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}
