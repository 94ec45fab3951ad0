package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// callConfig runs kvasir config with args and returns its exit code and what it printed.
func callConfig(t *testing.T, getenv func(string) string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, talk strings.Builder
	code = runConfig(t.Context(), environment{stdout: &out, stderr: &talk, getenv: getenv}, args)
	return code, out.String(), talk.String()
}

func noVariables(string) string { return "" }

func writeFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kvasir.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestConfigExample_PassesCheck(t *testing.T) {
	code, example, _ := callConfig(t, noVariables, "example")
	if code != 0 {
		t.Fatalf("config example: exit code %d, want 0", code)
	}
	file := writeFile(t, example)
	code, out, talk := callConfig(t, noVariables, "check", file)
	if code != 0 || talk != "" {
		t.Fatalf("config check of the example: exit code %d, printed %s%s", code, out, talk)
	}
	if want := file + ": ok: 3 models, 5 pools, 6 endpoints, 1 pool with discovery\n"; out != want {
		t.Errorf("config check printed %q, want %q", out, want)
	}
}

func TestConfigCheck_WhenFileIsWrong_PrintsEveryProblemWithPosition(t *testing.T) {
	file := writeFile(t, `listn: 127.0.0.1:8080
drain: 30
models:
  a:
    aliases: [a]
    endpoints: [http://10.0.0.1:8000, http://10.0.0.1:8000/v1]
    policy: {name: cache-aware, cache_threshold: 1.5}
`)
	code, out, _ := callConfig(t, noVariables, "check", file)
	if code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	want := []string{":1:1: unknown key", ":2:8: drain: ", ":5:15: models.a.aliases[0]: ", ":6:39: models.a.endpoints[1]: ", ":7:50: models.a.policy.cache_threshold: "}
	if len(lines) != len(want) {
		t.Fatalf("%d lines, want %d:\n%s", len(lines), len(want), out)
	}
	for i, line := range lines {
		if !strings.HasPrefix(line, file+want[i]) {
			t.Errorf("line %d is %q, want it to start with FILE%s", i+1, line, want[i])
		}
	}
}

func TestConfigCheck_Secrets(t *testing.T) {
	const file = "models: {a: [{url: http://a:1, key: env:KEY}]}\n"
	tests := []struct {
		name   string
		getenv func(string) string
		flags  []string
		code   int
	}{
		{"variable missing", noVariables, nil, 1},
		{"variable missing, not wanted", noVariables, []string{"--no-secrets"}, 0},
		{"variable there", func(string) string { return "hunter2" }, nil, 0},
		{"variable can't be a header", func(string) string { return "hunter2 hunter2" }, nil, 1},
	}
	for _, test := range tests {
		for _, order := range []string{"flags first", "flags last"} {
			t.Run(test.name+", "+order, func(t *testing.T) {
				args := append([]string{"check"}, test.flags...)
				args = append(args, writeFile(t, file))
				if order == "flags last" {
					args = append([]string{"check", args[len(args)-1]}, test.flags...)
				}
				code, out, talk := callConfig(t, test.getenv, args...)
				if code != test.code {
					t.Errorf("exit code %d, want %d; printed %s%s", code, test.code, out, talk)
				}
				if strings.Contains(out+talk, "hunter2") {
					t.Errorf("the secret is shown: %s%s", out, talk)
				}
			})
		}
	}
}

func TestConfig_WhenCalledWrongly_ExitsWithTwo(t *testing.T) {
	for _, args := range [][]string{
		{}, {"chek"}, {"check"}, {"check", "a", "b"}, {"example", "a"}, {"example", "-no-secrets"}, {"schema", "a"}, {"schema", "-no-secrets"}, {"check", "-secrets", "a"},
	} {
		code, out, talk := callConfig(t, noVariables, args...)
		if code != 2 || out != "" || !strings.Contains(talk, "usage: kvasir config") {
			t.Errorf("kvasir config %q: exit code %d, printed %q and %q; want 2 and the usage on stderr", args, code, out, talk)
		}
	}
	if code, out, _ := callConfig(t, noVariables, "check", "-h"); code != 0 || !strings.Contains(out, "usage") {
		t.Errorf("kvasir config check -h: exit code %d, printed %q", code, out)
	}
}

func TestConfigSchema_PrintsJSON(t *testing.T) {
	code, out, talk := callConfig(t, noVariables, "schema")
	if code != 0 || talk != "" || !json.Valid([]byte(out)) || !strings.Contains(out, `"cache-aware"`) {
		t.Errorf("exit code %d, printed %q and %q; want 0 and JSON that knows the policies", code, out, talk)
	}
}

func TestConfigCheck_FilesThatTheFileNames(t *testing.T) {
	file := writeFile(t, "listen: ':0'\nclients: {keys_file: keys.yaml}\nmodels: {a: [http://a:1]}\n")
	code, out, _ := callConfig(t, noVariables, "check", file)
	if want := file + ":2:22: clients.keys_file: \"keys.yaml\": cannot read the file: no such file or directory\n"; code != 1 || out != want {
		t.Errorf("exit code %d, printed %q; want 1 and %q", code, out, want)
	}
	if code, out, _ := callConfig(t, noVariables, "check", "-no-secrets", file); code != 0 {
		t.Errorf("-no-secrets: exit code %d, printed %q; want 0", code, out)
	}
	// The line that kvasir key prints is the file's.
	var key, talk strings.Builder
	if code := runKey(t.Context(), environment{stdout: &key, stderr: &talk}, []string{"-name", "tester"}); code != 0 {
		t.Fatalf("kvasir key: exit code %d, printed %q", code, talk.String())
	}
	_, line, _ := strings.Cut(key.String(), "\n")
	if err := os.WriteFile(filepath.Join(filepath.Dir(file), "keys.yaml"), []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out, _ := callConfig(t, noVariables, "check", file); code != 0 {
		t.Errorf("exit code %d, printed %q; want 0", code, out)
	}
}

func TestConfigCheck_WhenFileCannotBeRead_Fails(t *testing.T) {
	code, out, talk := callConfig(t, noVariables, "check", filepath.Join(t.TempDir(), "none.yaml"))
	if code != 1 || out != "" || !strings.Contains(talk, "none.yaml") {
		t.Errorf("exit code %d, printed %q and %q; want 1 and the file's name on stderr", code, out, talk)
	}
}
