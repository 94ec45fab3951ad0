package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"kvasir/web"
)

// callExport runs kvasir lab export with args.
func callExport(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return callLab(t, append([]string{"export"}, args...)...)
}

// read returns a folder's files by their paths.
func read(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(filepath.Join(dir, name))
		files[name] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// equal reports the files in which two folders differ.
func equal(t *testing.T, got, want map[string]string) {
	t.Helper()
	for name := range want {
		if got[name] != want[name] {
			t.Errorf("%s differs: %d bytes, want %d", name, len(got[name]), len(want[name]))
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("there is a file %s", name)
		}
	}
}

// One compilation serves all that needs a whole export: these tests are one.
func TestLabExport(t *testing.T) {
	dir := t.TempDir()
	site := filepath.Join(dir, "some", "site")
	code, out, talk := callExport(t, site)
	if code != 0 || talk != "" || !strings.Contains(out, "python3 -m http.server --directory "+site) {
		t.Fatalf("exit code %d, %s%s", code, out, talk)
	}
	files := read(t, site)

	t.Run("says what it wrote", func(t *testing.T) {
		var m manifest
		if err := json.Unmarshal([]byte(files[manifestFile]), &m); err != nil {
			t.Fatal(err)
		}
		if len(m.Files) != len(files)-1 {
			t.Errorf("%d files of %d are listed", len(m.Files), len(files)-1)
		}
		for name, sum := range m.Files {
			if hash([]byte(files[name])) != sum {
				t.Errorf("%s has another hash", name)
			}
		}
		for _, name := range []string{"index.html", "worker.js", "kvasir.wasm", "wasm_exec.js", "licences.txt"} {
			if _, ok := m.Files[name]; !ok {
				t.Errorf("%s is missing", name)
			}
		}
	})

	t.Run("without force, leaves what is there", func(t *testing.T) {
		code, out, talk := callExport(t, site)
		if code != 1 || out != "" || !strings.Contains(talk, "site is not empty; --force replaces an earlier export") {
			t.Errorf("exit code %d, %s%s", code, out, talk)
		}
	})

	t.Run("with force, refuses what it did not write", func(t *testing.T) {
		for what, c := range map[string]struct {
			name, content, want string
		}{
			"a file":          {"notes.txt", "mine", "notes.txt was not written by an export; nothing was replaced"},
			"a folder":        {"notes/mine.txt", "mine", "notes was not written by an export; nothing was replaced"},
			"a change":        {"worker.js", "mine", "worker.js was changed since the export; nothing was replaced"},
			"no manifest":     {manifestFile, "", "has no export.json, so no export wrote it; nothing was replaced"},
			"broken manifest": {manifestFile, "{", "export.json: unexpected end of JSON input"},
		} {
			t.Run(what, func(t *testing.T) {
				other := filepath.Join(t.TempDir(), "site")
				if err := os.CopyFS(other, os.DirFS(site)); err != nil {
					t.Fatal(err)
				}
				name := filepath.Join(other, c.name)
				if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
					t.Fatal(err)
				}
				err := os.WriteFile(name, []byte(c.content), 0o644)
				if c.content == "" {
					err = os.Remove(name)
				}
				if err != nil {
					t.Fatal(err)
				}
				before := read(t, other)
				code, out, talk := callExport(t, "--force", other)
				if code != 1 || out != "" || !strings.Contains(talk, c.want) {
					t.Errorf("exit code %d, %s%s", code, out, talk)
				}
				equal(t, read(t, other), before)
			})
		}
	})

	t.Run("of a binary that has the labs in it, is the same", func(t *testing.T) {
		other := filepath.Join(t.TempDir(), "site")
		c := exec.Command(withLabs(t, files), "lab", "export", other)
		c.Dir = t.TempDir()
		c.Env = []string{"PATH="} // no Go, and no module
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		equal(t, read(t, other), files)

		t.Run("with force, replaces an earlier export", func(t *testing.T) {
			stale := map[string]string{"index.html": "stale", "former/file.js": "stale"}
			m := manifest{Files: map[string]string{}}
			older := filepath.Join(t.TempDir(), "site")
			for name, content := range stale {
				m.Files[name] = hash([]byte(content))
				file := filepath.Join(older, name)
				if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			text, err := json.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(older, manifestFile), text, 0o644); err != nil {
				t.Fatal(err)
			}
			c := exec.Command(c.Path, "lab", "export", "--force", older)
			c.Env = []string{"PATH="}
			if out, err := c.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			equal(t, read(t, older), files)
			if left, err := os.ReadDir(filepath.Dir(older)); err != nil || len(left) != 1 {
				t.Errorf("beside the site: %v, %v", left, err)
			}
		})
	})

	t.Run("into an empty folder", func(t *testing.T) {
		empty := t.TempDir()
		content := map[string][]byte{}
		for name, text := range files {
			content[name] = []byte(text)
		}
		if err := mayReplace(empty, false); err != nil {
			t.Fatal(err)
		}
		if err := replaceFolder(empty, false, content); err != nil {
			t.Fatal(err)
		}
		equal(t, read(t, empty), files)
	})
}

// withLabs builds kvasir as make build does, with the labs of an export in it. It leaves the
// source alone: what make would put there is laid over it.
func withLabs(t *testing.T, files map[string]string) (binary string) {
	t.Helper()
	dir := t.TempDir()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	var compressed bytes.Buffer
	z := gzip.NewWriter(&compressed)
	if _, err := z.Write([]byte(files["kvasir.wasm"])); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	for name, content := range map[string]string{"kvasir.wasm.gz": compressed.String(), "wasm_exec.js": files["wasm_exec.js"]} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		overlay.Replace[filepath.Join(root, "web", "built", name)] = file
	}
	text, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), text, 0o644); err != nil {
		t.Fatal(err)
	}
	binary = filepath.Join(dir, "kvasir")
	out, err := exec.Command("go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-tags", "webassembly", "-o", binary, ".").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return binary
}

func TestLabExport_WhenItFails_LeavesNoHalfSite(t *testing.T) {
	dir := t.TempDir()
	site := filepath.Join(dir, "site")
	// a and a/b cannot both be files: the second one fails after the first was written.
	err := replaceFolder(site, true, map[string][]byte{"a": []byte("1"), "a/b": []byte("2")})
	if err == nil {
		t.Error("no error")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if err := os.Mkdir(site+".tmp", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := replaceFolder(site, true, nil); err == nil || !strings.Contains(err.Error(), "broken off leaves it behind") {
		t.Errorf("with a folder of another export: %v", err)
	}
	if _, err := os.Stat(site + ".tmp"); err != nil {
		t.Errorf("another export's folder is gone: %v", err)
	}
}

func TestLabExport_WhereLabsCannotBeCompiled_SaysBothWays(t *testing.T) {
	if _, ok, err := web.BuiltIn(); ok || err != nil {
		t.Skip("this binary has the labs in it")
	}
	site := filepath.Join(t.TempDir(), "site")
	both := "use one of make build, or run the command in a checkout of Kvasir where Go is installed"
	elsewhere := t.TempDir()
	t.Chdir(elsewhere)
	if code, _, talk := callExport(t, site); code != 1 || !strings.Contains(talk, both) || !strings.Contains(talk, "belongs to no module") {
		t.Errorf("outside of a module: exit code %d, %s", code, talk)
	}
	if err := os.WriteFile("go.mod", []byte("module other\n\ngo 1.26\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if code, _, talk := callExport(t, site); code != 1 || !strings.Contains(talk, both) || !strings.Contains(talk, `belongs to the module "other"`) {
		t.Errorf("in another module: exit code %d, %s", code, talk)
	}
	t.Setenv("PATH", "")
	if code, _, talk := callExport(t, site); code != 1 || !strings.Contains(talk, both) || !strings.Contains(talk, "executable file not found") {
		t.Errorf("without Go: exit code %d, %s", code, talk)
	}
	if left, err := os.ReadDir(filepath.Dir(site)); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestLabExport_WhenCalledWrongly_SaysHow(t *testing.T) {
	for want, args := range map[string][]string{
		"expected one DIR":              {},
		"expected one DIR\n":            {"a", "b"},
		"expected one DIR\nkvasir":      {""},
		"flag provided but not defined": {"site", "--forced"},
	} {
		if code, out, talk := callExport(t, args...); code != 2 || out != "" || !strings.Contains(talk, want) {
			t.Errorf("%q: exit code %d, %s%s", args, code, out, talk)
		}
	}
	if code, out, _ := callExport(t, "-h"); code != 0 || out != labExportUsage {
		t.Errorf("-h: exit code %d, %q", code, out)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if code, _, talk := callExport(t, file); code != 1 || !strings.Contains(talk, "not a directory") {
		t.Errorf("a file: exit code %d, %s", code, talk)
	}
}

// someExport returns the files of a small export.
func someExport(t *testing.T, text string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{"index.html": []byte(text), "code/a.go": []byte(text)}
	var err error
	if files[manifestFile], err = newManifest(files); err != nil {
		t.Fatal(err)
	}
	return files
}

// What comes into the folder after it was looked at, while the labs compile, stays.
func TestReplaceFolder_KeepsWhatCameMeanwhile(t *testing.T) {
	earlier := someExport(t, "earlier")
	for what, c := range map[string]struct {
		before bool // an earlier export is there
		force  bool
		comes  func(dir string) error
		want   string
	}{
		"a file beside an export": {true, true, func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "mine.txt"), []byte("mine"), 0o644)
		}, "site/mine.txt was not written by an export"},
		"a change of an export": {true, true, func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "code", "a.go"), []byte("mine"), 0o644)
		}, "site/code/a.go was changed since the export"},
		"a folder": {false, true, func(dir string) error {
			return errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "mine.txt"), []byte("mine"), 0o644))
		}, "site has no export.json"},
		"another export, without force": {false, false, func(dir string) error { return replaceFolder(dir, false, earlier) }, "site is not empty"},
	} {
		t.Run(what, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "site")
			if c.before {
				if err := replaceFolder(dir, false, earlier); err != nil {
					t.Fatal(err)
				}
			}
			if err := mayReplace(dir, c.force); err != nil {
				t.Fatal(err)
			}
			if err := c.comes(dir); err != nil {
				t.Fatal(err)
			}
			before := read(t, dir)
			if err := replaceFolder(dir, c.force, someExport(t, "new")); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "site.old") {
				t.Errorf("%v; want %q", err, c.want)
			}
			equal(t, read(t, dir), before)
			alone(t, dir)
		})
	}
	t.Run("a file in the folder's place", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "site")
		if err := os.WriteFile(dir, []byte("mine"), 0o644); err != nil {
			t.Fatal(err)
		}
		err := replaceFolder(dir, true, someExport(t, "new"))
		if b, gone := os.ReadFile(dir); err == nil || gone != nil || string(b) != "mine" {
			t.Errorf("%v; the file: %q, %v", err, b, gone)
		}
		alone(t, dir)
	})
}

// alone reports what an export has left beside a folder.
func alone(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(dir))
	if err != nil || len(entries) != 1 || entries[0].Name() != filepath.Base(dir) {
		t.Errorf("beside %s: %v, %v", dir, entries, err)
	}
}

// A folder keeps who may look into it, empty or not.
func TestReplaceFolder_KeepsTheMode(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "private")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"first", "second"} {
		if err := replaceFolder(dir, true, someExport(t, text)); err != nil {
			t.Fatal(err)
		}
		if i, err := os.Stat(dir); err != nil || i.Mode().Perm() != 0o700 {
			t.Errorf("mode is %v, %v", i.Mode().Perm(), err)
		}
		if got := read(t, dir)["index.html"]; got != text {
			t.Errorf("it has %q, want %q", got, text)
		}
		alone(t, dir)
	}
}

// A link to nowhere is not replaced by a folder.
func TestMayReplace_RefusesALinkToNowhere(t *testing.T) {
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink("nowhere", link); err != nil {
		t.Fatal(err)
	}
	const want = "link is a link to nowhere, which does not exist"
	for _, force := range []bool{false, true} {
		if err := mayReplace(link, force); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v", err)
		}
	}
	if err := replaceFolder(link, true, someExport(t, "new")); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v", err)
	}
	if to, err := os.Readlink(link); err != nil || to != "nowhere" {
		t.Errorf("the link leads to %q, %v", to, err)
	}
}

// What an export that was broken off has left is named before anything is compiled, with what to
// do about it.
func TestLabExport_NamesWhatWasLeftBehind(t *testing.T) {
	for suffix, want := range map[string]string{
		".tmp": "site.tmp is there: an export that was broken off leaves it behind; remove it",
		".old": "site held before; move it back, or remove it",
	} {
		t.Run(suffix, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "site")
			if err := os.Mkdir(dir+suffix, 0o755); err != nil {
				t.Fatal(err)
			}
			if code, _, talk := callExport(t, dir); code != 1 || !strings.Contains(talk, want) {
				t.Errorf("exit code %d, %s", code, talk)
			}
			stopped, stop := context.WithCancel(t.Context()) // so that nothing can be compiled
			stop()
			if _, err := exportTo(stopped, dir, true); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v", err)
			}
			if err := replaceFolder(dir, true, someExport(t, "new")); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v", err)
			}
		})
	}
}

// Where a folder can't be made the error says why.
func TestReplaceFolder_SaysWhyItCannot(t *testing.T) {
	parent := t.TempDir()
	name := strings.Repeat("x", 253) // ".tmp" makes it longer than file systems take
	err := replaceFolder(filepath.Join(parent, name), true, someExport(t, "new"))
	if err == nil || !strings.Contains(err.Error(), "file name too long") || strings.Contains(err.Error(), "broken off") {
		t.Errorf("%v", err)
	}
}
