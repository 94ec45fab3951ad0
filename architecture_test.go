// The drawing is a test: this file says which rooms the house has and who may know
// whom; architecture_check_test.go reads the source and compares,
// architecture_purity_test.go does so for the rules of pure code, and
// architecture_prove_test.go shows that each rule can fail.
package kvasir_test

import (
	"os"
	"testing"
)

// half says what a room's code may touch.
type half string

const (
	pure half = "pure" // no clock, no I/O, no goroutine, no lock, no changing global; standard library only
	live half = "live" // talks to the world
)

// floor is where a room stands. The five layers carry the article's numbers.
type floor string

const (
	common      floor = "no layer"                     // spoken by every layer
	client      floor = "layer 1 (clients)"            // who asks
	gateway     floor = "layer 2 (gateway)"            // the front door
	selection   floor = "layer 3 (endpoint selection)" // which endpoint
	engine      floor = "layer 4 (engine)"             // one inference engine
	accelerator floor = "layer 5 (accelerator)"        // the hardware
	upstream    floor = "dialects"                     // how to call what answers, and what it reports
	telemetry   floor = "telemetry"                    // metrics, logs, the decision log
	whole       floor = "the whole house"              // sums of the layers, and the wiring
)

// below lists the floors that a floor's rooms may import; imports go downward only.
// Engines are missing above engine: the gateway and endpoint selection learn of an
// engine through its answers, signals and events alone, as they would of a real one.
var below = map[floor][]floor{
	common:      {common},
	telemetry:   {telemetry, common, selection},
	upstream:    {upstream, common, selection, telemetry},
	client:      {client, common, gateway, selection, upstream, telemetry},
	gateway:     {gateway, common, selection, upstream, telemetry},
	selection:   {selection, common, upstream, telemetry},
	engine:      {engine, common, accelerator, telemetry},
	accelerator: {accelerator, common},
	whole:       {whole, common, client, gateway, selection, engine, accelerator, upstream, telemetry},
}

// room is a folder and everything under it that is not a room of its own.
type room struct {
	folder string
	half   half
	floor  floor
}

// drawing lists the rooms. A folder with Go code that is in none of them fails the
// test: add it here, where the review sees it.
var drawing = []room{
	{"api", pure, common},

	{"client/workload", pure, client},
	{"client/arrival", pure, client},
	{"client/load", live, client},
	{"client/load/report", pure, client},

	{"gateway/flow", pure, gateway},
	{"gateway/admission", pure, gateway},
	{"gateway/demand", pure, gateway},
	{"gateway/attempt", pure, gateway},
	{"gateway/limit", pure, gateway},
	{"gateway/proxy", live, gateway},
	{"gateway/extproc", live, gateway},

	{"selection", pure, selection},
	{"selection/policy", pure, selection},
	{"selection/scorer", pure, selection},
	{"selection/prefix", pure, selection},
	{"selection/signal", pure, selection},
	{"selection/health", pure, selection},
	{"selection/observe", live, selection},

	{"engine", pure, engine},
	{"engine/tokenizer", pure, engine},
	{"engine/emulator", live, engine},
	{"accelerator", pure, accelerator},

	{"sim", pure, whole},
	{"lab", pure, whole},
	{"upstream", pure, upstream},
	{"web", live, whole},
	{"telemetry", live, telemetry},
	{"config", live, whole},
	{"cmd", live, whole},
	{".", live, whole}, // the source that the page shows; nothing else is at the root

	{"internal", pure, common},
	{"internal/testkit", live, whole},
}

// elsewhere lists top-level folders that hold no code of this module: documents, and
// modules of their own.
var elsewhere = []string{"artifacts", "bench", "deploy", "docs", "examples", "test", "testdata", "tools"}

// guests lists rooms that only some others may import. Tests may import anything.
var guests = []struct {
	folder string
	by     []string
	reason string
}{
	{"gateway/flow", []string{"gateway/proxy", "gateway/extproc", "sim", "cmd"}, "only a shell with a clock drives the machine"},
	{"selection/policy", []string{"config", "cmd", "sim", "lab"}, "a policy reaches the machine as a value; only the wiring knows the catalogue"},
	{"sim", []string{"lab", "cmd", "web"}, "what is live must not depend on the simulator"},
	{"lab", []string{"cmd", "web"}, "experiments are run by a command or from the page"},
	{".", []string{"web"}, "the source is shown on the page and read by nobody else"},
	{"config", []string{"cmd", "web"}, "each package owns its part of the file; only the wiring knows the sum"},
	{"internal/testkit", nil, "it serves tests"},
}

// pickers are the rooms that may call a method named Pick.
var pickers = []string{"gateway/flow", "selection/policy", "lab"}

// allowed lists exceptions to purity.
var allowed = []struct{ folder, path, reason string }{
	{"internal/kvblock", "github.com/cespare/xxhash/v2", "the one block hash"},
	{"accelerator", "embed", "the catalogue of devices is part of the binary"},
	{"lab", "embed", "excerpts of traces, and the figures of the results, are part of the binary"},
	{"selection/prefix", "unsafe", "Sizeof measures what its budget bounds"},
}

// impure lists what pure code may not import, with everything below each path.
var impure = []struct{ path, reason string }{
	{"net", "the core does no I/O"},
	{"os", "the core does no I/O and reads no environment"},
	{"io/ioutil", "the core does no I/O"},
	{"path/filepath", "it reads the file system"},
	{"plugin", "the core does no I/O"},
	{"database", "the core does no I/O"},
	{"embed", "the core's data comes as values"},
	{"context", "nothing in the core waits, so nothing can be cancelled"},
	{"log", "the core says what it did by what it returns"},
	{"expvar", "the core says what it did by what it returns"},
	{"sync", "the core runs under its caller's lock"},
	{"math/rand", "randomness comes from internal/seed, named and seeded"},
	{"crypto/rand", "randomness comes from internal/seed, named and seeded"},
	{"hash/maphash", "its seed differs from run to run; use internal/kvblock"},
	{"runtime", "the core must not depend on how it is run"},
	{"syscall", "the core does no I/O"},
	{"unsafe", "the core is the same on every platform"},
	{"C", "the core is the same on every platform"},
	{"testing", "it serves tests"},
}

// forbidden lists what pure code may not name of the packages that it may import.
var forbidden = []struct {
	path, reason string
	names        []string
}{
	{"time", "now is a value that the driver hands in (mono.Time)",
		[]string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}},
	{"time", "it reads the machine's settings", []string{"Local", "LoadLocation"}},
	{"math", "its last bit differs between platforms, and a run gives the same bytes on all",
		[]string{"Exp", "Exp2", "Expm1", "Hypot", "Log", "Log10", "Log1p", "Log2", "Pow"}},
	{"unsafe", "only sizes are asked for", []string{"Pointer", "Add", "Slice", "SliceData", "String", "StringData"}},
	{"fmt", "the core does no I/O", []string{"Print", "Printf", "Println", "Scan", "Scanf", "Scanln"}},
}

func TestArchitecture(t *testing.T) {
	for _, problem := range check(os.DirFS(".")) {
		t.Error(problem)
	}
}
