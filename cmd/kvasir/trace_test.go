package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
)

const traceData = "../../client/workload/trace/testdata/"

// callTrace runs kvasir trace and returns its exit code and what it printed.
func callTrace(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, talk strings.Builder
	code = runTrace(t.Context(), environment{stdout: &out, stderr: &talk}, args)
	return code, out.String(), talk.String()
}

func TestTrace_Stats(t *testing.T) {
	code, out, talk := callTrace(t, "stats", traceData+"mooncake_conversation.jsonl", traceData+"azure_2023_code.csv")
	for _, want := range []string{
		"mooncake_conversation.jsonl: mooncake, 40 calls in 40 sessions\n",
		"timestamps are rounded: calls are spread within 3 s (--raw leaves them)",
		"calls, raw", "prompt tokens", "a cache that forgets nothing", "one LRU cache of 16.0 M tokens",
		"shared prefixes that save most", "azure, 60 calls in 60 sessions", "nothing is known of prefixes",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in:\n%s", want, out)
		}
	}
	if code != 0 || talk != "" {
		t.Errorf("exit code %d, said %q", code, talk)
	}
}

func TestTrace_StatsAsJSON(t *testing.T) {
	code, out, talk := callTrace(t, "stats", "--format", "json", traceData+"sharegpt.json")
	var all []map[string]any
	if err := json.Unmarshal([]byte(out), &all); err != nil || len(all) != 1 {
		t.Fatalf("%v: %s", err, out)
	}
	d := all[0]
	if code != 0 || d["calls"] != 3. || d["bad_records"] != 1. || d["records"] != 3. || d["tokens_estimated"] != true || d["drawn_sessions_per_second"] != 1. {
		t.Errorf("exit code %d: %v", code, d)
	}
	want := "kvasir trace: " + traceData + "sharegpt.json:13: conversations has no question; allowed: one or more messages that are no answers\n" +
		"kvasir trace: " + traceData + "sharegpt.json: passed over 1 bad record of 3\n"
	if talk != want {
		t.Errorf("it said\n%s  want\n%s", talk, want)
	}
}

func TestTrace_WhenStrict_EndsAtABadRecord(t *testing.T) {
	code, out, talk := callTrace(t, "stats", "--strict", traceData+"sharegpt.json")
	if code != 1 || out != "" || !strings.HasPrefix(talk, "kvasir trace: "+traceData+"sharegpt.json:13: ") {
		t.Errorf("exit code %d, printed %q, said %q", code, out, talk)
	}
}

// TestTrace_Convert: a compressed copy says the same as the file itself.
func TestTrace_Convert(t *testing.T) {
	folder := t.TempDir()
	for _, file := range []string{"agents.jsonl", "mooncake_synthetic.jsonl", "prompts.jsonl"} {
		for _, ending := range []string{".jsonl", ".jsonl.zst"} {
			to := filepath.Join(folder, file+ending)
			code, out, talk := callTrace(t, "convert", "--raw", traceData+file, to)
			if code != 0 || out != "" || !strings.Contains(talk, "wrote") {
				t.Fatalf("exit code %d, printed %q, said %q", code, out, talk)
			}
			b, err := os.ReadFile(to)
			if packed := bytes.HasPrefix(b, []byte("\x28\xb5\x2f\xfd")); err != nil || packed != strings.HasSuffix(to, ".zst") {
				t.Errorf("%s is compressed: %v (%v)", to, packed, err)
			}
			_, want, _ := callTrace(t, "head", "--raw", "-n", "100", traceData+file)
			if _, got, _ := callTrace(t, "head", "-n", "100", to); got != want || len(want) < 200 {
				t.Errorf("%s: the copy shows\n%s  want\n%s", file, got, want)
			}
			if code, _, talk := callTrace(t, "convert", traceData+file, to); code != 1 || !strings.Contains(talk, "--force overwrites it") {
				t.Errorf("a file that is there: exit code %d, said %q", code, talk)
			}
			if code, _, talk := callTrace(t, "convert", "--force", traceData+file, to); code != 0 {
				t.Errorf("with --force: exit code %d, said %q", code, talk)
			}
		}
	}
	left, err := filepath.Glob(filepath.Join(folder, ".*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v (%v)", left, err)
	}
}

// What is no regular file stays what it is: it is written to, and so is what a link leads to.
func TestTrace_Convert_WritesThroughPipesAndLinks(t *testing.T) {
	folder := t.TempDir()
	_, want, _ := callTrace(t, "convert", traceData+"agents.jsonl", "-")
	if len(want) < 200 {
		t.Fatalf("the trace is %q", want)
	}

	pipe := filepath.Join(folder, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Skip("no pipes here:", err)
	}
	read := make(chan string)
	go func() { b, err := os.ReadFile(pipe); read <- fmt.Sprint(string(b), err) }()
	code, _, talk := callTrace(t, "convert", "--force", traceData+"agents.jsonl", pipe)
	if info, err := os.Lstat(pipe); code != 0 || err != nil || info.Mode().Type() != fs.ModeNamedPipe {
		t.Fatalf("exit code %d, said %q, the pipe is %v (%v)", code, talk, info, err)
	}
	if got := <-read; got != want+"<nil>" {
		t.Errorf("the pipe gave %.200q", got)
	}
	// Nobody reads it: the command ends when it is interrupted.
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	var said strings.Builder
	if code := runTrace(ctx, environment{stdout: &said, stderr: &said}, []string{"convert", "--force", traceData + "agents.jsonl", pipe}); code != 1 || !strings.Contains(said.String(), "interrupted") {
		t.Errorf("exit code %d, said %q", code, said.String())
	}

	target, link, dangling := filepath.Join(folder, "target"), filepath.Join(folder, "link"), filepath.Join(folder, "dangling")
	for _, err := range []error{os.WriteFile(target, []byte("old"), 0o600), os.Symlink("target", link), os.Symlink("new", dangling)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, x := range [][2]string{{link, target}, {dangling, filepath.Join(folder, "new")}} {
		code, _, talk := callTrace(t, "convert", "--force", traceData+"agents.jsonl", x[0])
		info, err := os.Lstat(x[0])
		if b, _ := os.ReadFile(x[1]); code != 0 || err != nil || info.Mode().Type() != fs.ModeSymlink || string(b) != want {
			t.Errorf("%s: exit code %d, said %q, it is %v (%v), its target has %d bytes", x[0], code, talk, info, err, len(b))
		}
	}
	if _, err := os.Stat("/dev/full"); err == nil {
		link := filepath.Join(folder, "full") // so that a mistake does not replace the device
		if err := os.Symlink("/dev/full", link); err != nil {
			t.Fatal(err)
		}
		if code, _, talk := callTrace(t, "convert", "--force", traceData+"agents.jsonl", link); code != 1 || !strings.Contains(talk, "no space left") {
			t.Errorf("a full device: exit code %d, said %q", code, talk)
		}
	}
}

func TestTrace_ConvertOfBadRecordsAlone_Fails(t *testing.T) {
	folder := t.TempDir()
	in, out := filepath.Join(folder, "in"), filepath.Join(folder, "out")
	if err := os.WriteFile(in, []byte("{\"kvasir_trace\":1}\n{}\n{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, _, talk := callTrace(t, "convert", in, out)
	if _, err := os.Stat(out); code != 1 || !strings.Contains(talk, "passed over 2 bad records of 2") || !strings.Contains(talk, "none of its 2 records") || err == nil {
		t.Errorf("exit code %d, said %q", code, talk)
	}
}

func TestTrace_ConvertThatFails_LeavesNothing(t *testing.T) {
	folder := t.TempDir()
	code, _, talk := callTrace(t, "convert", "--strict", traceData+"sharegpt.json", filepath.Join(folder, "out.jsonl"))
	left, err := os.ReadDir(folder)
	if code != 1 || err != nil || len(left) > 0 {
		t.Errorf("exit code %d, said %q, left %v", code, talk, left)
	}
}

// Of a copy it is not said that --raw would leave what was spread, and its bin is as it was
// scaled. The header has no folder's name.
func TestTrace_ACopySaysWhatWasSpread(t *testing.T) {
	to := filepath.Join(t.TempDir(), "copy.jsonl.gz")
	if code, _, talk := callTrace(t, "convert", "--rate", "4", traceData+"mooncake_conversation.jsonl", to); code != 0 {
		t.Fatal(talk)
	}
	packed, err := os.ReadFile(to)
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatalf("what ends with .gz is not gzip: %v", err)
	}
	text, err := io.ReadAll(z)
	if header, _, _ := strings.Cut(string(text), "\n"); err != nil || !strings.HasPrefix(header, `{"kvasir_trace":1,"name":"mooncake_conversation.jsonl","block_tokens":512,"spread_within_ns":74`) {
		t.Errorf("%v; the header is %s", err, header)
	}
	for _, raw := range []string{"--raw=false", "--raw"} {
		_, out, talk := callTrace(t, "stats", raw, to)
		if !strings.Contains(out, "calls were spread within 0.75 s of a rounded timestamp before this was written\n") || strings.Contains(out, "--raw") || talk != "" {
			t.Errorf("%s: %s%s", raw, out, talk)
		}
	}
}

func TestTrace_SaysThatNothingIsLeft(t *testing.T) {
	file, to := traceData+"mooncake_conversation.jsonl", filepath.Join(t.TempDir(), "none.jsonl")
	for _, words := range [][]string{{"stats", file}, {"head", file}, {"convert", file, to}} {
		code, _, talk := callTrace(t, append(words, "--from", "5h", "--for", "10s", "--raw")...)
		if want := "kvasir trace: " + file + ": nothing is left: it has 40 sessions, of which the last one comes after 12s\n"; code != 1 || talk != want {
			t.Errorf("%v: exit code %d, said %q, want %q", words, code, talk, want)
		}
	}
	if _, err := os.Stat(to); err == nil {
		t.Error("a file without sessions is there")
	}
	if code, _, talk := callTrace(t, "stats", "--workload", "chat-turn", "--for", "1ns"); code != 1 || !strings.Contains(talk, "no session comes by poisson:rate=1") {
		t.Errorf("exit code %d, said %q", code, talk)
	}
}

// A generator's workload is written as a trace, and says the same when it is read.
func TestTrace_OfAWorkload(t *testing.T) {
	to := filepath.Join(t.TempDir(), "mix.jsonl.zst")
	spec := []string{"--workload", "conversations:turns=3", "--arrivals", "poisson:rate=2", "--for", "20s", "--seed", "7"}
	code, _, talk := callTrace(t, append([]string{"convert", to}, spec...)...)
	if code != 0 || !strings.Contains(talk, "conversations:turns=3: wrote ") {
		t.Fatalf("exit code %d, said %q", code, talk)
	}
	_, want, _ := callTrace(t, append([]string{"head", "-n", "1000"}, spec...)...)
	if _, got, talk := callTrace(t, "head", "-n", "1000", to); got != want || strings.Count(got, "\n") < 60 {
		t.Errorf("the copy shows\n%s  want\n%s%s", got, want, talk)
	}
	_, out, talk := callTrace(t, append([]string{"stats"}, spec...)...)
	_, again, _ := callTrace(t, "stats", to)
	if body := strings.SplitN(again, "\n", 2); !strings.HasPrefix(out, "conversations:turns=3: generated, ") || !strings.HasSuffix(out, body[1]) || talk != "" {
		t.Errorf("%s%s of the copy\n%s", out, talk, again)
	}
	// Ten minutes at one a second, unless it is said.
	_, out, _ = callTrace(t, "stats", "--workload", "chat-turn", "--format", "json")
	var all []struct{ Sessions int }
	if err := json.Unmarshal([]byte(out), &all); err != nil || all[0].Sessions < 500 || all[0].Sessions > 700 {
		t.Errorf("%v: %.100s", err, out)
	}
}

func TestTrace_ReadsCompressedFiles(t *testing.T) {
	plain, err := os.ReadFile(traceData + "azure_2024.csv")
	if err != nil {
		t.Fatal(err)
	}
	var ending, packed bytes.Buffer
	g := gzip.NewWriter(&ending)
	z, err := zstd.NewWriter(&packed)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []interface {
		Write([]byte) (int, error)
		Close() error
	}{g, z} {
		if _, err := w.Write(plain); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	_, want, _ := callTrace(t, "head", traceData+"azure_2024.csv")
	for name, b := range map[string][]byte{"ending": ending.Bytes(), "packed": packed.Bytes()} {
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if code, got, talk := callTrace(t, "head", file); code != 0 || got != want {
			t.Errorf("%s: exit code %d, said %q, showed\n%s", name, code, talk, got)
		}
		// A file that is cut off is not taken for a shorter one.
		if err := os.WriteFile(file, b[:len(b)-9], 0o600); err != nil {
			t.Fatal(err)
		}
		if code, _, talk := callTrace(t, "stats", file); code != 1 || talk == "" {
			t.Errorf("%s, cut off: exit code %d, said %q", name, code, talk)
		}
	}
}

func TestTrace_HeadAsJSON_IsATrace(t *testing.T) {
	code, out, _ := callTrace(t, "head", "-n", "2", "--format", "json", traceData+"agents.jsonl")
	if lines := strings.Count(out, "\n"); code != 0 || lines != 3 || !strings.HasPrefix(out, `{"kvasir_trace":1,`) {
		t.Errorf("exit code %d, %d lines: %.100s", code, lines, out)
	}
}

func TestTrace_SaysWhatIsMisused(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "expected stats, convert or head"},
		{[]string{"tell"}, `no command "tell"; allowed: stats, convert, head`},
		{[]string{"stats"}, "stats takes one FILE or several"},
		{[]string{"convert", "a"}, "convert takes two files, IN and OUT"},
		{[]string{"head"}, "head takes one FILE"},
		{[]string{"stats", "--format", "csv", "f"}, `--format is "csv"; allowed: table, json`},
		{[]string{"stats", "-n", "3", "f"}, "stats has no flag --n"},
		{[]string{"stats", "--in", "morse", "f"}, "Format is morse; allowed: kvasir, "},
		{[]string{"stats", "--rate", "-2", "f"}, "Rate is -2; allowed: "},
		{[]string{"head", "-n", "0", "f"}, "-n is 0; allowed: 1 or more"},
		{[]string{"stats", "--workload", "chat-turn", "f"}, "stats --workload takes no file"},
		{[]string{"convert", "--workload", "chat-turn", "f", "g"}, "convert --workload takes one file, OUT"},
		{[]string{"stats", "--workload", ""}, "--workload is empty"},
		{[]string{"stats", "--workload", "wat", "--arrivals", "never"}, "--workload: "},
		{[]string{"stats", "--workload", "wat", "--arrivals", "never"}, "--arrivals: "},
		{[]string{"stats", "--workload", "chat-turn", "--raw", "--rate", "-1"}, "--raw is given with --workload"},
		{[]string{"stats", "--workload", "chat-turn", "--raw", "--rate", "-1"}, "Rate is -1"},
		{[]string{"stats", "--arrivals", "poisson:rate=1", "f"}, "--arrivals is given without --workload"},
		{[]string{"stats", "--for", "5", "f"}, "invalid value \"5\" for flag -for: allowed: a duration with its unit"},
		{[]string{"stats", "--colour"}, "flag provided but not defined"},
	} {
		if code, out, talk := callTrace(t, c.args...); code != 2 || out != "" || !strings.Contains(talk, c.want) {
			t.Errorf("%v: exit code %d, printed %q, said %q", c.args, code, out, talk)
		}
	}
	if code, _, talk := callTrace(t, "stats", "nowhere"); code != 1 || !strings.Contains(talk, "nowhere") {
		t.Errorf("a file that is not there: exit code %d, said %q", code, talk)
	}
	if code, out, _ := callTrace(t, "-h"); code != 0 || !strings.Contains(out, "sharegpt") {
		t.Errorf("help: exit code %d", code)
	}
}
