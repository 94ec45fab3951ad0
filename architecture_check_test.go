package kvasir_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// check returns what in the tree departs from the drawing, in the order of the files.
func check(tree fs.FS) []string {
	c := &checker{tree: tree, fset: token.NewFileSet()}
	c.module = c.gomod("go.mod")
	if err := fs.WalkDir(tree, ".", c.visit); err != nil {
		c.problem("%v", err)
	}
	return c.problems
}

type checker struct {
	tree     fs.FS
	fset     *token.FileSet
	module   string // the module's path
	problems []string
}

func (c *checker) problem(format string, args ...any) {
	if p := fmt.Sprintf(format, args...); !slices.Contains(c.problems, p) {
		c.problems = append(c.problems, p)
	}
}

// at is problem with a place in the source.
func (c *checker) at(pos token.Pos, format string, args ...any) {
	p := c.fset.Position(pos)
	c.problem("%s:%d: %s", p.Filename, p.Line, fmt.Sprintf(format, args...))
}

// visit looks at one folder of the tree; files are read with their folder.
func (c *checker) visit(name string, d fs.DirEntry, err error) error {
	if err != nil || !d.IsDir() {
		return err
	}
	if base := path.Base(name); name != "." && (strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") || base == "testdata") {
		return fs.SkipDir
	}
	if name != "." && !strings.Contains(name, "/") && !isTop(name) {
		c.problem("%s: unknown folder: add it to the drawing in architecture_test.go", name)
		return fs.SkipDir
	}
	entries, err := fs.ReadDir(c.tree, name)
	if err != nil {
		return err
	}
	var sources []string
	for _, e := range entries {
		switch {
		case e.Name() == "go.mod" && name != ".":
			c.gomod(path.Join(name, "go.mod")) // another module has its own rules
			return fs.SkipDir
		case strings.HasSuffix(e.Name(), ".go") && !strings.HasSuffix(e.Name(), "_test.go"):
			sources = append(sources, path.Join(name, e.Name()))
		}
	}
	if len(sources) > 0 {
		c.folder(name, sources)
	}
	return nil
}

func isTop(folder string) bool {
	return slices.Contains(elsewhere, folder) ||
		slices.ContainsFunc(drawing, func(r room) bool { return within(r.folder, folder) })
}

// within reports whether a path is folder or below it.
func within(p, folder string) bool {
	return p == folder || strings.HasPrefix(p, folder+"/")
}

// roomOf returns the innermost room that holds the folder.
func roomOf(folder string) (best room, ok bool) {
	for _, r := range drawing {
		if within(folder, r.folder) && len(r.folder) > len(best.folder) {
			best, ok = r, true
		}
	}
	return best, ok
}

// folder checks one package's files that are not tests.
func (c *checker) folder(name string, sources []string) {
	r, ok := roomOf(name)
	if !ok {
		c.problem("%s: Go code in a folder that is no room: add it to the drawing in architecture_test.go", name)
		return
	}
	files := make([]*ast.File, 0, len(sources))
	for _, s := range sources {
		text, err := fs.ReadFile(c.tree, s)
		if err != nil {
			c.problem("%v", err)
			return
		}
		f, err := parser.ParseFile(c.fset, s, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			c.problem("%v", err)
			return
		}
		files = append(files, f)
	}
	c.comment(name, r, files)
	for _, f := range files {
		c.imports(name, r, f)
		if !slices.ContainsFunc(pickers, func(p string) bool { return within(name, p) }) {
			c.picks(f)
		}
	}
	if r.half == pure {
		c.purity(name, files)
	}
}

var layered = regexp.MustCompile(`^layer ([1-5])`)

// comment checks that the package says once what it is, and its place in the house.
func (c *checker) comment(name string, r room, files []*ast.File) {
	var docs []*ast.File
	for _, f := range files {
		if f.Doc != nil {
			docs = append(docs, f)
		}
	}
	if len(docs) != 1 {
		c.problem("%s: %d package comments, want one: whoever opens a package must read what it is", name, len(docs))
		return
	}
	f := docs[0]
	start := "Package " + f.Name.Name + " "
	if f.Name.Name == "main" {
		start = "Command " + path.Base(name) + " "
	}
	text := strings.Join(strings.Fields(f.Doc.Text()), " ") + " "
	if !strings.HasPrefix(text, start) {
		c.at(f.Doc.Pos(), "the package comment must start with %q", start)
	}
	if layer := layered.FindStringSubmatch(string(r.floor)); layer != nil {
		place := regexp.MustCompile(fmt.Sprintf(`^\w+ \w+ is layer %s \([^)]+\), %s\b`, layer[1], r.half))
		if !place.MatchString(text) {
			c.at(f.Doc.Pos(), "the package comment must name layer and purity: %sis layer %s (…), %s: …", start, layer[1], r.half)
		}
	}
}

// imports checks the directions between rooms, and what pure rooms take from outside.
func (c *checker) imports(name string, r room, f *ast.File) {
	for _, spec := range f.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			c.at(spec.Pos(), "%v", err)
			continue
		}
		if p == c.module {
			c.direction(name, r, ".", spec.Pos())
		} else if target, ok := strings.CutPrefix(p, c.module+"/"); ok {
			c.direction(name, r, target, spec.Pos())
		} else if r.half == pure {
			c.outside(name, p, spec)
		}
	}
}

// direction checks an import of this module's own folder target by the folder name.
func (c *checker) direction(name string, r room, target string, pos token.Pos) {
	t, ok := roomOf(target)
	switch {
	case !ok:
		c.at(pos, "imports %s, which is no room: add it to the drawing in architecture_test.go", target)
		return
	case r.half == pure && t.half == live:
		c.at(pos, "imports %s, which is live: pure imports pure", target)
	case !slices.Contains(below[r.floor], t.floor):
		c.at(pos, "imports %s: %s does not know %s; imports go downward only", target, r.floor, t.floor)
	}
	for _, g := range guests {
		if !within(target, g.folder) || within(name, g.folder) {
			continue
		}
		if !slices.ContainsFunc(g.by, func(by string) bool { return within(name, by) }) {
			c.at(pos, "imports %s, which only %s may: %s", target, strings.Join(append(slices.Clip(g.by), "tests"), ", "), g.reason)
		}
	}
}

// outside checks a pure room's import of what is not ours.
func (c *checker) outside(name, p string, spec *ast.ImportSpec) {
	for _, a := range allowed {
		if a.path == p && within(name, a.folder) {
			return
		}
	}
	if spec.Name != nil && spec.Name.Name == "." {
		c.at(spec.Pos(), "dot import of %s: pure code must show where a name comes from", p)
	}
	if first, _, _ := strings.Cut(p, "/"); strings.Contains(first, ".") {
		c.at(spec.Pos(), "imports %s: pure code uses the standard library only", p)
	}
	for _, b := range impure {
		if within(p, b.path) {
			c.at(spec.Pos(), "pure code imports %s: %s", p, b.reason)
		}
	}
}

// picks finds calls of a policy outside the machine. It goes by the method's name.
func (c *checker) picks(f *ast.File) {
	ast.Inspect(f, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			if sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr); ok && sel.Sel.Name == "Pick" {
				c.at(sel.Sel.Pos(), "calls Pick: only %s may call a policy, so that pick and charge are one step", pickers[0])
			}
		}
		return true
	})
}

var goLine = regexp.MustCompile(`^go 1\.26(\.\d+)?$`)

// gomod checks a go.mod and returns its module's path.
func (c *checker) gomod(name string) (module string) {
	text, err := fs.ReadFile(c.tree, name)
	if err != nil {
		c.problem("%v", err)
		return ""
	}
	docs, _ := fs.ReadFile(c.tree, "docs/dependencies.md")
	var version, block string
	for n, line := range strings.Split(string(text), "\n") {
		line, comment, _ := strings.Cut(line, "//")
		f := strings.Fields(line)
		switch {
		case len(f) == 0:
			continue
		case len(f) == 2 && f[1] == "(":
			block = f[0]
			continue
		case f[0] == ")":
			block = ""
			continue
		case block != "":
			f = append([]string{block}, f...)
		}
		switch f[0] {
		case "module":
			module = f[len(f)-1]
		case "go":
			version = strings.Join(f, " ")
		case "replace":
			if name == "go.mod" { // the modules of tests and tools are not installed by anybody
				c.problem("%s:%d: replace line: what is built here must be what everybody else builds", name, n+1)
			}
		case "require":
			direct := !strings.HasPrefix(strings.TrimSpace(comment), "indirect")
			own := f[1] == "kvasir" || strings.HasPrefix(f[1], "kvasir/")
			if direct && !own && !strings.Contains(string(docs), "`"+f[1]+"`") {
				c.problem("%s:%d: %s is not named in docs/dependencies.md", name, n+1, f[1])
			}
		}
	}
	if !goLine.MatchString(version) {
		c.problem("%s: says %q, want go 1.26: the language this project is written in", name, version)
	}
	return module
}
