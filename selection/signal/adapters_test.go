package signal

import (
	"slices"
	"testing"

	"kvasir/internal/kvblock"
)

func TestAdapters_KeepsWhatIsNamedAndCountsTheRest(t *testing.T) {
	var many []kvblock.Hash
	for i := range 100 {
		many = append(many, kvblock.Hash(200-i), kvblock.Hash(200-i)) // each twice
	}
	a := AdaptersOf(4, many, []kvblock.Hash{7, 3}, 9)
	if !a.Known() || a.Slots() != 4 || a.At != 9 {
		t.Errorf("%+v", a)
	}
	if r := a.Running(); r.Len() != 100 || len(r.Named()) != MaxAdapters || !r.Has(101) || !r.Has(164) || r.Has(165) || r.Has(7) {
		t.Errorf("running: %d, named %v", r.Len(), r.Named())
	}
	if w := a.Waiting(); w.Len() != 2 || !slices.Equal(w.Named(), []kvblock.Hash{3, 7}) || !w.Has(3) || w.Has(4) {
		t.Errorf("waiting: %+v", w)
	}
}

func TestAdapters_UnknownIsNotNone(t *testing.T) {
	var unknown Adapters
	if unknown.Known() || unknown.Slots() != 0 || unknown.Running().Len() != 0 || unknown.Waiting().Has(0) {
		t.Errorf("%+v", unknown)
	}
	if none := AdaptersOf(4, nil, nil, 1); !none.Known() || none.Running().Len() != 0 {
		t.Errorf("%+v", none)
	}
}

func TestAdapter_IsNeverTheBaseModel(t *testing.T) {
	if a, b := Adapter("sql"), Adapter("chat"); a == b || a == 0 || Adapter("") == 0 {
		t.Errorf("%x, %x", a, b)
	}
}

func TestLoad_MergesAdapters(t *testing.T) {
	l := Load{Running: Known(1, 1), Adapters: AdaptersOf(4, []kvblock.Hash{5}, nil, 1)}
	l.Merge(Load{Running: Known(2, 2)}.Stamped(2))
	if !l.Adapters.Running().Has(5) || l.Adapters.At != 1 {
		t.Errorf("a report that tells no adapters changed them: %+v", l.Adapters)
	}
	l.Merge(Load{Adapters: AdaptersOf(2, nil, nil, 0)}.Stamped(3))
	if l.Adapters.Running().Has(5) || l.Adapters.Slots() != 2 || l.Adapters.At != 3 {
		t.Errorf("a newer report did not replace them: %+v", l.Adapters)
	}
	if (Load{}).Stamped(3).Adapters.Known() {
		t.Error("a stamp makes known what is not")
	}
}
