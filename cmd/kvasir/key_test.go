package main

import (
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"
	"testing/iotest"

	"kvasir/config"
)

// callKey runs kvasir key with args and stdin and returns its exit code and what it
// printed.
func callKey(stdin io.Reader, args ...string) (code int, stdout, stderr string) {
	var out, talk strings.Builder
	code = keyFrom(stdin, environment{stdout: &out, stderr: &talk}, args)
	return code, out.String(), talk.String()
}

func TestKey_PrintsANewKeyAndTheLineForIt(t *testing.T) {
	form := regexp.MustCompile(`^(kv_[A-Za-z0-9_-]{43})\n(- \{name: "team-1", sha256: "([0-9a-f]{64})"\})\n$`)
	seen := map[string]bool{}
	for range 3 {
		code, out, talk := callKey(strings.NewReader("unread"), "-name", "team-1")
		m := form.FindStringSubmatch(out)
		if code != 0 || talk != "" || m == nil {
			t.Fatalf("exit code %d, printed %q and %q", code, out, talk)
		}
		key, line, hash := m[1], m[2], m[3]
		if seen[key] {
			t.Errorf("the key %s came twice", key)
		}
		seen[key] = true
		if got := config.HashKey(key).Hex(); got != hash {
			t.Errorf("the line has %s, the key's SHA-256 is %s", hash, got)
		}
		for _, data := range []string{key, key + "\n", key + "\r\n"} {
			if _, out, _ := callKey(strings.NewReader(data), "-hash"); out != hash+"\n" {
				t.Errorf("-hash of %q prints %q, want %s", data, out, hash)
			}
		}
		file := "models: {a: [http://h]}\nclients:\n  keys:\n    " + line + "\n"
		c, err := config.Parse("x.yaml", []byte(file), config.Env{})
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Clients.Keys; len(got) != 1 || got[0].Name != "team-1" || got[0].SHA256 != config.HashKey(key) {
			t.Errorf("the file holds %v, want the key's line", got)
		}
	}
}

// The vector is RFC 6234's "abc".
func TestKeyHash_IsSHA256(t *testing.T) {
	_, out, _ := callKey(strings.NewReader("abc"), "-hash")
	if want := "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\n"; out != want {
		t.Errorf("printed %q, want %q", out, want)
	}
}

func TestKeyHash_WhenThereIsNoKey_Fails(t *testing.T) {
	for name, stdin := range map[string]io.Reader{
		"nothing": strings.NewReader(""), "a line end": strings.NewReader("\n"), "two words": strings.NewReader("hunter 2"),
		"too long": strings.NewReader(strings.Repeat("h", maxKey+1)), "an error": iotest.ErrReader(errors.New("broken")),
	} {
		if code, out, talk := callKey(stdin, "-hash"); code != 1 || out != "" || talk == "" || strings.Contains(talk, "nter") {
			t.Errorf("%s: exit code %d, printed %q and %q; want 1 and a reason without the key", name, code, out, talk)
		}
	}
}

func TestKey_WhenCalledWrongly_ExitsWithTwo(t *testing.T) {
	for _, args := range [][]string{{"a"}, {"-hash", "kv_x"}, {"-hash", "-name", "a"}, {"-name", ""}, {"-name", "a b"}, {"-name", "a\n"}, {"-x"}} {
		code, out, talk := callKey(strings.NewReader("abc"), args...)
		if code != 2 || out != "" || !strings.Contains(talk, "usage: kvasir key") {
			t.Errorf("kvasir key %q: exit code %d, printed %q and %q; want 2 and the usage on stderr", args, code, out, talk)
		}
	}
	if code, out, _ := callKey(strings.NewReader(""), "-h"); code != 0 || out != keyUsage {
		t.Errorf("kvasir key -h: exit code %d, printed %q", code, out)
	}
}
