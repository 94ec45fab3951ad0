package kvasir_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// sound is a small house without a fault. It uses what the rules could mistake for one.
var sound = map[string]string{
	"go.mod":               "module kvasir\n\ngo 1.26.0\n\nrequire (\n\texample.org/named v1.0.0\n\texample.org/deep v1.0.0 // indirect\n)\n",
	"docs/dependencies.md": "| `example.org/named` | reason |",
	"README.md":            "",
	"root_test.go":         "package kvasir_test\n\nimport _ \"net/http\"\n",
	"internal/mono/mono.go": `// Package mono is time.
package mono
`,
	"internal/kvblock/kvblock.go": `// Package kvblock hashes.
package kvblock

import _ "github.com/cespare/xxhash/v2"
`,
	"selection/selection.go": `// Package selection is layer 3 (endpoint selection), pure: the nouns.
package selection

import (
	"errors"
	"time"

	"kvasir/internal/mono"
)

// ErrNone is a sentinel.
var ErrNone = errors.New("none")

var table = [...]int{1, 2}

type tally struct{ n int }

func (t *tally) add() { t.n++ }

func (t tally) sum() int { return t.n }

var zero tally

func f(now mono.Time, d time.Duration) int {
	table := table // a local of the same name may change
	table[0]++
	var t tally
	t.add()
	p := &t
	p.n = 3
	time := struct{ Now func() int }{func() int { return zero.sum() }}
	return time.Now() + table[1]
}
`,
	"selection/selection_test.go": "package selection\n\nimport \"time\"\n\nvar now = time.Now()\n",
	"selection/policy/policy.go": `// Package policy is layer 3 (endpoint selection), pure:
// the rules.
package policy

import "kvasir/selection"

var _ = selection.ErrNone
`,
	"selection/observe/observe.go": `// Package observe is layer 3 (endpoint selection), live: what is known stays fresh.
package observe

import (
	"net/http"
	"sync"
	"time"

	"kvasir/selection"
	"kvasir/upstream"
)

var seen = time.Now()
`,
	"gateway/flow/flow.go": `// Package flow is layer 2 (the front door), pure: the life of calls.
package flow

import "kvasir/selection"

func pick(p selection.Policy) { p.Pick() }
`,
	"upstream/upstream.go": "// Package upstream speaks dialects.\npackage upstream\n\nimport _ \"kvasir/selection\"\n",
	"cmd/kvasir/main.go": `// Command kvasir is the binary.
package main

import (
	"kvasir/gateway/flow"
	"kvasir/selection/policy"
	"kvasir/sim"
)
`,
	"sim/sim.go":          "// Package sim sums the pure halves.\npackage sim\n\nimport \"kvasir/gateway/flow\"\n",
	"sim/testdata/bad.go": "package broken (",
	".hidden/bad.go":      "package broken (",
	"bench/go.mod":        "module kvasir/bench\n\ngo 1.26\n",
	"bench/bench.go":      "package bench\n\nimport \"kvasir/anything\"\n",
}

// policy returns a faulty selection/policy: a pure package with one statement or
// declaration too many.
func policy(imports, body string) map[string]string {
	return map[string]string{"selection/policy/policy.go": "// Package policy is layer 3 (endpoint selection), pure: rules.\npackage policy\n\n" +
		imports + "\n\n" + body + "\n"}
}

// inFunc puts a statement where the rules are hardest to keep: in a closure that is the
// argument of a call whose types are not known.
func inFunc(imports, statement string) map[string]string {
	return policy(imports, "var table = []int{1}\n\nvar byName = map[string]int{}\n\ntype tally struct{ n int }\n\nfunc (t *tally) add() { t.n++ }\n\nvar total tally\n\n"+
		"func f() {\n\tunknown.Call(func() {\n\t\t"+statement+"\n\t})\n}")
}

// importing returns a package that imports one of our own.
func importing(folder, comment, imported string) map[string]string {
	name := folder[strings.LastIndex(folder, "/")+1:]
	return map[string]string{folder + "/x.go": "// Package " + name + " " + comment + "\npackage " + name + "\n\nimport _ \"" + imported + "\"\n"}
}

var faults = []struct {
	name string
	tree map[string]string // laid over sound
	want string            // in the only problem's text
}{
	// What pure code imports.
	{"net", policy(`import "net"`, ""), "policy.go:4: pure code imports net: the core does no I/O"},
	{"net/http", policy(`import "net/http"`, ""), "imports net/http"},
	{"os", policy(`import "os"`, ""), "imports os: "},
	{"os/exec", policy(`import "os/exec"`, ""), "imports os/exec"},
	{"context", policy(`import "context"`, ""), "nothing in the core waits"},
	{"log", policy(`import "log"`, ""), "imports log: "},
	{"log/slog", policy(`import "log/slog"`, ""), "imports log/slog"},
	{"sync", policy(`import "sync"`, ""), "under its caller's lock"},
	{"sync/atomic", policy(`import "sync/atomic"`, ""), "imports sync/atomic"},
	{"math/rand", policy(`import "math/rand"`, ""), "internal/seed"},
	{"math/rand/v2", policy(`import "math/rand/v2"`, ""), "imports math/rand/v2"},
	{"crypto/rand", policy(`import "crypto/rand"`, ""), "imports crypto/rand"},
	{"runtime", policy(`import "runtime/debug"`, ""), "imports runtime/debug"},
	{"syscall", policy(`import "syscall"`, ""), "imports syscall"},
	{"unsafe", policy(`import "unsafe"`, ""), "imports unsafe"},
	{"cgo", policy(`import "C"`, ""), "imports C: "},
	{"database", policy(`import "database/sql"`, ""), "imports database/sql"},
	{"plugin", policy(`import "plugin"`, ""), "imports plugin"},
	{"ioutil", policy(`import "io/ioutil"`, ""), "imports io/ioutil"},
	{"filepath", policy(`import "path/filepath"`, ""), "it reads the file system"},
	{"expvar", policy(`import "expvar"`, ""), "imports expvar"},
	{"testing", policy(`import "testing/quick"`, ""), "imports testing/quick"},
	{"embed", policy(`import _ "embed"`, ""), "imports embed"},
	{"maphash", policy(`import "hash/maphash"`, ""), "differs from run to run"},
	{"a library", policy(`import "github.com/cespare/xxhash/v2"`, ""), "standard library only"},
	{"a dot import", policy(`import . "time"`, ""), "dot import of time"},
	{"a live package", policy(`import "kvasir/selection/observe"`, ""), "which is live"},

	// What pure code does.
	{"time.Now", inFunc(`import "time"`, "_ = time.Now()"), "policy.go:18: uses time.Now: now is a value"},
	{"time.Since by another name", inFunc(`import clock "time"`, "_ = clock.Since(x)"), "uses time.Since"},
	{"time.Until", inFunc(`import "time"`, "_ = time.Until(x)"), "uses time.Until"},
	{"time.Sleep", inFunc(`import "time"`, "time.Sleep(1)"), "uses time.Sleep"},
	{"time.After", inFunc(`import "time"`, "_ = time.After(1)"), "uses time.After"},
	{"time.AfterFunc", inFunc(`import "time"`, "time.AfterFunc(1, nil)"), "uses time.AfterFunc"},
	{"time.Tick", inFunc(`import "time"`, "_ = time.Tick(1)"), "uses time.Tick"},
	{"time.NewTimer", inFunc(`import "time"`, "_ = time.NewTimer(1)"), "uses time.NewTimer"},
	{"time.NewTicker", inFunc(`import "time"`, "_ = time.NewTicker(1)"), "uses time.NewTicker"},
	{"time.Now as a value", policy(`import "time"`, "var now = time.Now"), "uses time.Now"},
	{"time.Local", inFunc(`import "time"`, "_ = time.Local"), "uses time.Local"},
	{"unsafe.Pointer", map[string]string{"selection/prefix/x.go": "// Package prefix is layer 3 (endpoint selection), pure: x\npackage prefix\n\nimport \"unsafe\"\n\nconst size = unsafe.Sizeof(0)\n\nvar p unsafe.Pointer\n"}, "x.go:8: uses unsafe.Pointer"},
	{"fmt.Println", inFunc(`import "fmt"`, "fmt.Println()"), "uses fmt.Println"},
	{"math.Exp", inFunc(`import "math"`, "_ = math.Exp(1)"), "uses math.Exp: its last bit differs"},
	{"println", inFunc("", "println()"), "prints"},
	{"a goroutine", inFunc("", "go f()"), "starts a goroutine"},
	{"a channel", policy("", "func f(c chan int) {}"), "uses a channel"},
	{"a select", inFunc("", "select {}"), "uses a channel"},
	{"assignment", inFunc("", "table = nil"), "variable table: state belongs"},
	{"assignment to an element", inFunc("", "(table[0]) = 1"), "variable table"},
	{"assignment with an operator", inFunc("", "total.n += 1"), "variable total"},
	{"assignment in a range", inFunc("", "for _, table[0] = range x {\n}"), "variable table"},
	{"increment", inFunc("", "byName[``]++"), "variable byName"},
	{"delete", inFunc("", "delete(byName, ``)"), "variable byName"},
	{"clear", inFunc("", "clear(byName)"), "variable byName"},
	{"copy", inFunc("", "copy(table[:1], x)"), "variable table"},
	{"an address", inFunc("", "_ = &table[0]"), "variable table"},
	{"a method on a pointer", inFunc("", "total.add()"), "variable total"},

	// Directions.
	{"selection knows engine", importing("selection/prefix", "is layer 3 (endpoint selection), pure: x", "kvasir/engine"), "layer 3 (endpoint selection) does not know layer 4 (engine)"},
	{"gateway knows engine", importing("gateway/proxy", "is layer 2 (the front door), live: x", "kvasir/engine/emulator"), "layer 2 (gateway) does not know layer 4 (engine)"},
	{"selection knows gateway", importing("selection/health", "is layer 3 (endpoint selection), pure: x", "kvasir/gateway/attempt"), "does not know layer 2"},
	{"gateway knows client", importing("gateway/proxy", "is layer 2 (the front door), live: x", "kvasir/client/workload"), "does not know layer 1"},
	{"accelerator knows engine", importing("accelerator", "is layer 5 (the hardware), pure: x", "kvasir/engine"), "does not know layer 4"},
	{"internal knows selection", importing("internal/stats", "counts.", "kvasir/selection"), "no layer does not know layer 3"},
	{"lab knows what is live", importing("lab", "compares.", "kvasir/telemetry"), "which is live"},
	{"telemetry knows the wiring", importing("telemetry", "tells.", "kvasir/web"), "telemetry does not know the whole house"},
	{"live knows sim", importing("config", "loads.", "kvasir/sim"), "must not depend on the simulator"},
	{"another drives flow", importing("client/load", "is layer 1 (clients), live: x", "kvasir/gateway/flow"), "only a shell with a clock drives"},
	{"another knows the catalogue", importing("gateway/proxy", "is layer 2 (the front door), live: x", "kvasir/selection/policy"), "only the wiring knows"},
	{"sim runs experiments", importing("sim/more", "runs.", "kvasir/lab"), "imports lab, which only cmd, web, tests may"},
	{"another loads the file", importing("internal/testkit", "helps.", "kvasir/config"), "imports config, which only cmd, web, tests may"},
	{"testkit in the product", importing("web", "shows.", "kvasir/internal/testkit"), "it serves tests"},
	{"another reads the source", importing("config", "loads.", "kvasir"), "the source is shown on the page and read by nobody else"},
	{"no such room", importing("web", "shows.", "kvasir/elsewhere"), "add it to the drawing"},
	{"another picks", map[string]string{"gateway/proxy/x.go": "// Package proxy is layer 2 (the front door), live: x\npackage proxy\n\nfunc f() { policy.Pick() }\n"}, "calls Pick"},
	{"a neighbour picks", map[string]string{"selection/policyx/x.go": "// Package policyx is layer 3 (endpoint selection), pure: x\npackage policyx\n\nfunc f() { policy.Pick() }\n"}, "calls Pick"},

	// Folders, comments, modules.
	{"a new top-level folder", map[string]string{"extra/notes.txt": ""}, "extra: unknown folder: add it to the drawing"},
	{"a new room in a known one", map[string]string{"gateway/extra/x.go": "// Package extra is new.\npackage extra\n"}, "gateway/extra: Go code in a folder that is no room"},
	{"code among documents", map[string]string{"docs/x.go": "// Package docs is code.\npackage docs\n"}, "docs: Go code in a folder that is no room"},
	{"no package comment", map[string]string{"sim/sim.go": "package sim\n"}, "sim: 0 package comments, want one"},
	{"two package comments", map[string]string{"sim/more.go": "// Package sim again.\npackage sim\n"}, "sim: 2 package comments, want one"},
	{"a comment that starts otherwise", map[string]string{"sim/sim.go": "// This package sims.\npackage sim\n"}, `must start with "Package sim "`},
	{"a command's comment", map[string]string{"cmd/kvasir/main.go": "// Package main is it.\npackage main\n"}, `must start with "Command kvasir "`},
	{"a comment without its layer", map[string]string{"selection/policy/policy.go": "// Package policy has rules.\npackage policy\n"}, "is layer 3 (…), pure"},
	{"a comment with another half", map[string]string{"selection/policy/policy.go": "// Package policy is layer 3 (endpoint selection), live: x\npackage policy\n"}, "is layer 3 (…), pure"},
	{"broken source", map[string]string{"sim/sim.go": "// Package sim is broken.\npackage sim\n\nfunc {\n"}, "sim/sim.go:4"},
	{"a replace line", map[string]string{"go.mod": "module kvasir\n\ngo 1.26\n\nreplace a => b v1.0.0\n"}, "go.mod:5: replace line"},
	{"a replace block", map[string]string{"go.mod": "module kvasir\n\ngo 1.26\n\nreplace (\n\ta => b v1.0.0\n)\n"}, "go.mod:6: replace line"},
	{"another language", map[string]string{"go.mod": "module kvasir\n\ngo 1.27.0\n"}, `says "go 1.27.0", want go 1.26`},
	{"another language of a module", map[string]string{"bench/go.mod": "module kvasir/bench\n\ngo 1.25\n"}, `bench/go.mod: says "go 1.25"`},
	{"a dependency without a reason", map[string]string{"go.mod": "module kvasir\n\ngo 1.26\n\nrequire example.org/new v1.0.0\n"}, "go.mod:5: example.org/new is not named in docs/dependencies.md"},
}

func problemsOf(over map[string]string) []string {
	tree := fstest.MapFS{}
	all := maps.Clone(sound)
	maps.Copy(all, over)
	for name, text := range all {
		tree[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return check(tree)
}

func TestArchitectureAcceptsASoundHouse(t *testing.T) {
	if got := problemsOf(nil); len(got) > 0 {
		t.Errorf("faults found where there are none:\n%s", strings.Join(got, "\n"))
	}
}

func TestArchitectureFindsEachFault(t *testing.T) {
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			got := problemsOf(f.tree)
			if len(got) != 1 || !strings.Contains(got[0], f.want) {
				t.Errorf("problems %q, want one with %q", got, f.want)
			}
		})
	}
}

// Every row of the drawing's tables has a fault that shows it at work.
func TestArchitectureProvesEveryBan(t *testing.T) {
	var wants []string
	for _, f := range faults {
		wants = append(wants, f.want)
		wants = append(wants, slices.Collect(maps.Values(f.tree))...)
	}
	text := strings.Join(wants, "\n")
	for _, b := range impure {
		if !strings.Contains(text, `"`+b.path) {
			t.Errorf("no fault shows the ban on %s", b.path)
		}
	}
	for _, b := range forbidden {
		for _, name := range b.names[:1] {
			if !strings.Contains(text, b.path+"."+name) {
				t.Errorf("no fault shows the ban on %s.%s", b.path, name)
			}
		}
	}
	for _, g := range guests {
		if !strings.Contains(text, g.reason) && !strings.Contains(text, "kvasir/"+g.folder) {
			t.Errorf("no fault shows who may import %s", g.folder)
		}
	}
}
