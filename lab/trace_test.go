package lab

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"kvasir/client/workload"
)

const azureHead = "TIMESTAMP,ContextTokens,GeneratedTokens\n"

// TestKnee_OnATrace by hand: services of 1 s and 3 s have mean 2, σ 1 and C_s² 1/4, so at a wait
// of 3 the knee is 3/(3 + 5/8).
func TestKnee_OnATrace(t *testing.T) {
	l, _ := Lookup("knee")
	own := &Trace{Name: "own.csv", Data: []byte(azureHead + "2023-11-16 18:15:46.6805900,1000,0\n2023-11-16 18:15:50.9951690,1000,20\n")}
	r, err := l.Run(Options{Trace: own, Settings: []Setting{{"prefill_rate", "1000"}, {"tpot", "0.1"}}})
	if err != nil {
		t.Fatal(err)
	}
	row := r.Tables[0].Rows[3]
	if row[0].String() != "own.csv" || math.Abs(row[1].Value()-0.25) > 1e-12 || math.Abs(row[3].Value()-3/3.625) > 1e-12 {
		t.Errorf("the trace's row is %v", row)
	}
	curve := r.Tables[1]
	if last := curve.Columns[4]; last.Name != "own.csv" || len(curve.Rows[0]) != 5 {
		t.Errorf("the table by utilization ends with %q", last.Name)
	}
	if p := r.Plots[0]; len(p.Series) != 4 || !strings.Contains(p.Says, "own.csv, whose C_s² is 0.25, at 0.83.") {
		t.Errorf("%d curves; %s", len(p.Series), p.Says)
	}
	if len(r.Verdicts) != 0 || r.Trace != "own.csv" {
		t.Errorf("%d verdicts on trace %q", len(r.Verdicts), r.Trace)
	}
}

// TestKnee_ReadsEveryFormat that tells how long answers were, and says of the others that they don't.
func TestKnee_ReadsEveryFormat(t *testing.T) {
	l, _ := Lookup("knee")
	files, err := filepath.Glob("../client/workload/trace/testdata/*.*")
	if err != nil {
		t.Fatal(err)
	}
	read := 0
	for _, file := range files {
		name := filepath.Base(file)
		if name == "README.md" {
			continue
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, err = l.Run(Options{Trace: &Trace{Name: name, Data: data}})
		if name == "prompts.jsonl" || name == "sharegpt.json" {
			if err == nil || !strings.HasPrefix(err.Error(), name+": call 1 of session ") || !strings.Contains(err.Error(), "has no output length") {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil {
			t.Error(err)
		}
		read++
	}
	if read < 9 {
		t.Errorf("%d files were read", read)
	}
}

func TestRun_WhenTheTraceIsWrong_SaysWhere(t *testing.T) {
	for want, data := range map[string]string{
		"own: the file is empty":       "",
		"own: the format is not known": "what\n",
		"own:3: ":                      azureHead + "2023-11-16 18:15:46.6805900,1000,1\n2023-11-16 18:15:46.6805900,many,1\n",
	} {
		l, _ := Lookup("knee")
		if _, err := l.Run(Options{Trace: &Trace{Name: "own", Data: []byte(data)}}); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	l, _ := Lookup("capacity")
	if _, err := l.Run(Options{Trace: &Trace{}, Seeds: 1}); err == nil || err.Error() != "capacity takes no trace" {
		t.Errorf("%v", err)
	}
	for _, l := range Catalog() {
		if _, takes := l.settings().(traced); takes != l.Traced {
			t.Errorf("%s: Traced is %v", l.Name, l.Traced)
		}
	}
}

// TestReadTrace_CutsAtALine, and the result says so.
func TestReadTrace_CutsAtALine(t *testing.T) {
	const lines = azureHead + "2023-11-16 18:15:46.6805900,1000,1\n2023-11-16 18:15:47.6805900,2000,1\n"
	tr, err := readTrace("own", "azure", strings.NewReader(lines), len(lines))
	if err != nil || tr.Cut || string(tr.Data) != lines || tr.Name != "own" || tr.Format != "azure" {
		t.Errorf("%+v, %v", tr, err)
	}
	tr, err = readTrace("own", "", strings.NewReader(lines), len(lines)-1)
	if err != nil || !tr.Cut || string(tr.Data) != lines[:strings.LastIndex(lines[:len(lines)-1], "\n")+1] {
		t.Errorf("%+v, %v", tr, err)
	}
	l, _ := Lookup("knee")
	r, err := l.Run(Options{Trace: tr})
	if err != nil || !strings.Contains(r.Tables[2].Title, "1 calls of own, all of its part within the bound of 64 MiB; the rest is left out") {
		t.Errorf("%v, %v", r, err)
	}
	if _, err = readTrace("own", "", strings.NewReader(lines), 10); err == nil || err.Error() != "own: its first line has more than 10 bytes; allowed: 10" {
		t.Errorf("%v", err)
	}
	broken := errors.New("broken")
	if _, err = readTrace("own", "", iotest.ErrReader(broken), 10); !errors.Is(err, broken) || !strings.HasPrefix(err.Error(), "own: ") {
		t.Errorf("%v", err)
	}
	if _, err := (&Trace{Name: "own", Data: make([]byte, MaxTrace+1)}).workload(); err == nil || !strings.Contains(err.Error(), "allowed: 67108864") {
		t.Errorf("%v", err)
	}
}

func TestTrace_EachCall_EndsAtTheBound(t *testing.T) {
	tr, err := ReadTrace("own", "", strings.NewReader(azureHead+strings.Repeat("2023-11-16 18:15:46.6805900,1000,1\n", 5)))
	if err != nil {
		t.Fatal(err)
	}
	for most, want := range map[int]bool{4: true, 5: false, 6: false} {
		n := 0
		more, err := tr.eachCall(most, func(workload.Call) { n++ })
		if err != nil || more != want || n != min(most, 5) {
			t.Errorf("at most %d: %d calls, more %v, %v", most, n, more, err)
		}
	}
}
