package signal

import (
	"math"
	"reflect"
	"testing"
)

// rank returns a rank of which only what set sets is told.
func rank(id int32, set func(*Rank)) Rank {
	r := UnknownRank(id)
	if set != nil {
		set(&r)
	}
	return r
}

func ids(r Ranks) []int32 {
	var ids []int32
	for _, r := range r.All() {
		ids = append(ids, r.ID)
	}
	return ids
}

func TestRanksOf_SortsAndBounds(t *testing.T) {
	for _, none := range [][]Rank{nil, {}, {{ID: 0}}} {
		if r := RanksOf(none, 7); r != (Ranks{}) || r.Len() != 0 || r.All() != nil {
			t.Errorf("%v: %+v", none, r)
		}
	}
	if r := RanksOf([]Rank{{ID: 3}}, 7); r.Len() != 1 || r.At != 7 {
		t.Errorf("rank 3 of several: %+v", r.All())
	}
	r := RanksOf([]Rank{{ID: 3}, {ID: 1}}, 7)
	if r.At != 7 || !reflect.DeepEqual(ids(r), []int32{1, 3}) {
		t.Errorf("two ranks: %d at %d", ids(r), r.At)
	}
	many := make([]Rank, MaxRanks+5)
	for i := range many {
		many[i].ID = int32(len(many) - i)
	}
	if r := RanksOf(many, 7); r.Len() != MaxRanks || ids(r)[0] != 1 || ids(r)[MaxRanks-1] != MaxRanks {
		t.Errorf("many ranks: %d", ids(r))
	}
}

func TestRanks_JoinTakesWhatBetterTells(t *testing.T) {
	a := RanksOf([]Rank{
		rank(0, func(r *Rank) { r.Running, r.Preemptions = 1, 5 }),
		rank(2, func(r *Rank) { r.Running = 3 }),
	}, 7)
	b := RanksOf([]Rank{
		rank(0, func(r *Rank) { r.Running, r.WaitingTokens = 9, 100 }),
		rank(1, func(r *Rank) { r.Running = 2 }),
	}, 8)
	j := a.Join(b)
	if !reflect.DeepEqual(ids(j), []int32{0, 1, 2}) || j.At != 8 {
		t.Fatalf("%d at %d", ids(j), j.At)
	}
	all := j.All()
	if all[0].Running != 9 || all[0].Preemptions != 5 || all[0].WaitingTokens != 100 || all[1].Running != 2 || all[2].Running != 3 ||
		!math.IsNaN(all[0].KVUsage) {
		t.Errorf("%+v", all)
	}
	if a.All()[0].Running != 1 || a.Len() != 2 {
		t.Errorf("Join changed what it was given: %+v", a.All())
	}
	if (Ranks{}).Join(b) != b || a.Join(Ranks{}) != a {
		t.Error("no ranks and some are not the some")
	}
}

func TestUnknownRank_TellsNothing(t *testing.T) {
	r := reflect.ValueOf(UnknownRank(4))
	for i := range r.NumField() {
		if f := r.Field(i); f.Kind() == reflect.Float64 && !math.IsNaN(f.Float()) {
			t.Errorf("%s is %v", r.Type().Field(i).Name, f.Float())
		}
	}
	u := UnknownRank(0)
	if len(u.numbers()) != r.NumField()-1 {
		t.Error("numbers lacks a field")
	}
}

func TestLoad_KVUsageMaxIsOfTheFullestRank(t *testing.T) {
	l := Load{KVUsage: Known(0.5, 10)}
	if l.KVUsageMax() != l.KVUsage || (&Load{}).KVUsageMax().Known {
		t.Errorf("without ranks: %+v", l.KVUsageMax())
	}
	l.Ranks = RanksOf([]Rank{
		rank(0, func(r *Rank) { r.KVUsage = 0.1 }),
		rank(1, func(r *Rank) { r.KVUsage = 0.9 }),
		rank(2, nil),
	}, 10)
	if l.KVUsageMax() != Known(0.9, 10) {
		t.Errorf("with ranks: %+v", l.KVUsageMax())
	}
	// A rank that isn't told apart may be the fullest.
	l.KVUsage = Known(0.95, 10)
	if l.KVUsageMax() != l.KVUsage {
		t.Errorf("below the mean: %+v", l.KVUsageMax())
	}
}
