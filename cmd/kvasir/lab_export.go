package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"kvasir/web"
)

const labExportUsage = `usage: kvasir lab export DIR [--force]

Writes the page with all labs as a static site: any file server can serve it, under any path, and
the labs run in the browser. DIR must not exist, or be empty. It is written whole or not at all.

A binary of make build has the labs for the browser in it. Any other one compiles them: then the
command must be run in a checkout of Kvasir, and needs Go.

  --force   replace what an earlier export wrote; it refuses where DIR has anything else in it

example:
  kvasir lab export site && python3 -m http.server --directory site
`

// runLabExport is kvasir lab export: it writes the page as a static site.
func runLabExport(ctx context.Context, env environment, args []string) int {
	f := flag.NewFlagSet("kvasir lab export", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	force := f.Bool("force", false, "")
	words, err := parseAnywhere(f, args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(env.stdout, labExportUsage)
		return 0
	}
	if err == nil && (len(words) != 1 || words[0] == "") {
		err = errors.New("expected one DIR")
	}
	if err != nil {
		fmt.Fprintf(env.stderr, "kvasir lab export: %v\nkvasir lab export -h says how it is called.\n", err)
		return 2
	}
	files, err := exportTo(ctx, words[0], *force)
	if err != nil {
		for _, e := range flatten(err) {
			fmt.Fprintf(env.stderr, "kvasir lab export: %v\n", e)
		}
		return 1
	}
	sum := 0
	for _, content := range files {
		sum += len(content)
	}
	fmt.Fprintf(env.stdout, "%s: %d files, %.1f MB; the labs work from any file server, such as\n  python3 -m http.server --directory %s\n",
		words[0], len(files), float64(sum)/1e6, words[0])
	return 0
}

// exportTo writes the site and returns its files.
func exportTo(ctx context.Context, name string, force bool) (map[string][]byte, error) {
	dir, err := filepath.Abs(name)
	if err != nil {
		return nil, err
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	if err := errors.Join(mayReplace(dir, force), nothingBeside(dir)); err != nil {
		return nil, err
	}
	program, ok, err := web.BuiltIn()
	if err == nil && !ok {
		program, err = compileLabs(ctx)
	}
	if err != nil {
		return nil, err
	}
	files, err := web.Export(program)
	if err != nil {
		return nil, err
	}
	if files[manifestFile], err = newManifest(files); err != nil {
		return nil, err
	}
	return files, replaceFolder(dir, force, files)
}

// compileLabs compiles the labs for a browser with the Go toolchain, out of the module in whose
// folder the command runs.
func compileLabs(ctx context.Context) (p web.Program, err error) {
	tool := func(args ...string) (string, error) {
		c := exec.CommandContext(ctx, "go", args...)
		c.Env = append(os.Environ(), "GOOS=js", "GOARCH=wasm", "CGO_ENABLED=0", "GOWORK=off")
		var talk bytes.Buffer
		c.Stderr = &talk
		out, err := c.Output()
		if err != nil && talk.Len() > 0 {
			err = fmt.Errorf("go %s: %w\n%s", args[0], err, bytes.TrimSpace(talk.Bytes()))
		}
		return strings.TrimSpace(string(out)), err
	}
	const either = "this binary has no labs for the browser in it: use one of make build, or run the command in a checkout of Kvasir where Go is installed"
	switch module, err := tool("list", "-m"); {
	case err != nil:
		return p, fmt.Errorf("%s (%w)", either, err)
	case module == "command-line-arguments": // what Go says outside of any
		return p, fmt.Errorf("%s (this folder belongs to no module)", either)
	case module != "kvasir":
		return p, fmt.Errorf("%s (this folder belongs to the module %q)", either, module)
	}
	scratch, err := os.MkdirTemp("", "kvasir-export-")
	if err != nil {
		return p, err
	}
	defer os.RemoveAll(scratch)
	// The Makefile's flags, so that both give the same bytes.
	out := filepath.Join(scratch, "kvasir.wasm")
	if _, err := tool("build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", out, "kvasir/web/wasm"); err != nil {
		return p, err
	}
	if p.Labs, err = os.ReadFile(out); err != nil {
		return p, err
	}
	goroot, err := tool("env", "GOROOT") // of the toolchain that go.mod may have chosen
	if err != nil {
		return p, err
	}
	p.Runtime, err = os.ReadFile(filepath.Join(goroot, "lib", "wasm", "wasm_exec.js"))
	return p, err
}

// manifestFile says of a folder what an export wrote into it.
const manifestFile = "export.json"

// manifest is its content.
type manifest struct {
	Files map[string]string `json:"files"` // SHA-256 in hexadecimal, by path
}

func newManifest(files map[string][]byte) ([]byte, error) {
	m := manifest{Files: map[string]string{}}
	for name, content := range files {
		m.Files[name] = hash(content)
	}
	b, err := json.MarshalIndent(m, "", "  ")
	return append(b, '\n'), err
}

func hash(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// mayReplace returns an error unless dir is absent or empty, or unless force is given and dir
// holds what an earlier export wrote, unchanged, and nothing else.
func mayReplace(dir string, force bool) error { return mayReplaceAs(dir, dir, force) }

// mayReplaceAs is mayReplace of a folder that errors call by another name, shown.
func mayReplaceAs(dir, shown string, force bool) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if to, err := os.Readlink(dir); err == nil {
			return fmt.Errorf("%s is a link to %s, which does not exist; nothing was replaced", shown, to)
		}
		return nil
	case err != nil:
		return err
	case len(entries) == 0:
		return nil
	case !force:
		return fmt.Errorf("%s is not empty; --force replaces an earlier export", shown)
	}
	text, err := os.ReadFile(filepath.Join(dir, manifestFile))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s has no %s, so no export wrote it; nothing was replaced", shown, manifestFile)
	}
	if err != nil {
		return err
	}
	var m manifest
	if err := json.Unmarshal(text, &m); err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(shown, manifestFile), err)
	}
	folders := map[string]bool{".": true}
	for name := range m.Files {
		for name != "." && name != "/" {
			name = path.Dir(name)
			folders[name] = true
		}
	}
	return filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(dir, file)
		if err != nil {
			return err
		}
		name := filepath.ToSlash(relative)
		if folders[name] && d.IsDir() || name == manifestFile {
			return nil
		}
		if _, ok := m.Files[name]; !ok || !d.Type().IsRegular() {
			return fmt.Errorf("%s was not written by an export; nothing was replaced", filepath.Join(shown, relative))
		}
		content, err := os.ReadFile(file)
		if err == nil && hash(content) != m.Files[name] {
			err = fmt.Errorf("%s was changed since the export; nothing was replaced", filepath.Join(shown, relative))
		}
		return err
	})
}

// fresh and former are the folders beside dir that replaceFolder uses.
func fresh(dir string) string  { return dir + ".tmp" }
func former(dir string) string { return dir + ".old" }

// nothingBeside returns an error where an export that was broken off has left something.
func nothingBeside(dir string) error {
	var errs []error
	if _, err := os.Lstat(fresh(dir)); err == nil {
		errs = append(errs, fmt.Errorf("%s is there: an export that was broken off leaves it behind; remove it", fresh(dir)))
	}
	if _, err := os.Lstat(former(dir)); err == nil {
		errs = append(errs, fmt.Errorf("%s is there: an export that was broken off leaves in it what %s held before; move it back, or remove it", former(dir), dir))
	}
	return errors.Join(errs...)
}

// replaceFolder makes dir hold the files and nothing else, and keeps its mode. They are written
// beside it first: dir is there whole, or as it was. What has come into it since mayReplace
// looked stays: the folder is looked at again once it is out of others' way.
func replaceFolder(dir string, force bool, files map[string][]byte) (err error) {
	if err := nothingBeside(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	fresh, former := fresh(dir), former(dir)
	if err := os.Mkdir(fresh, 0o755); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(fresh)) }() // nothing is there where all went well
	for _, name := range slices.Sorted(maps.Keys(files)) {
		file := filepath.Join(fresh, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, files[name], 0o644); err != nil {
			return err
		}
	}
	switch err := os.Rename(dir, former); {
	case errors.Is(err, fs.ErrNotExist):
		return os.Rename(fresh, dir)
	case err != nil:
		return err
	}
	err = mayReplaceAs(former, dir, force)
	if err == nil {
		err = sameMode(fresh, former)
	}
	if err == nil {
		err = os.Rename(fresh, dir)
	}
	if err != nil {
		return errors.Join(err, os.Rename(former, dir))
	}
	return os.RemoveAll(former)
}

// sameMode gives a folder the mode of another one.
func sameMode(dir, as string) error {
	info, err := os.Stat(as)
	if err != nil {
		return err
	}
	return os.Chmod(dir, info.Mode())
}
