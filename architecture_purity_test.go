package kvasir_test

import (
	"errors"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
)

// purity checks what pure code does with what it may import.
func (c *checker) purity(name string, files []*ast.File) {
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}, Selections: map[*ast.SelectorExpr]*types.Selection{}}
	// Only names within the package have to be resolved, so imports stay empty and the
	// errors that follow from that are of no interest.
	conf := types.Config{Importer: noImports{}, FakeImportC: true, Error: func(error) {}}
	pkg, _ := conf.Check(name, c.fset, files, info)
	for _, f := range files {
		p := purist{checker: c, pkg: pkg, info: info}
		for _, d := range f.Decls {
			if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.IMPORT {
				continue
			}
			ast.Inspect(d, p.node)
		}
	}
}

type noImports struct{}

func (noImports) Import(string) (*types.Package, error) {
	return nil, errors.New("imports are not followed")
}

type purist struct {
	*checker
	pkg  *types.Package
	info *types.Info
}

func (p purist) node(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GoStmt:
		p.at(n.Pos(), "starts a goroutine: the order of events must come from the driver")
	case *ast.ChanType, *ast.SendStmt, *ast.SelectStmt:
		p.at(n.Pos(), "uses a channel: the core has no other goroutine to talk to")
	case *ast.SelectorExpr:
		p.selector(n)
	case *ast.CallExpr:
		p.call(n)
	case *ast.AssignStmt:
		if n.Tok != token.DEFINE { // := makes a local variable
			for _, e := range n.Lhs {
				p.changes(e)
			}
		}
	case *ast.IncDecStmt:
		p.changes(n.X)
	case *ast.RangeStmt:
		if n.Tok == token.ASSIGN {
			p.changes(n.Key)
			p.changes(n.Value)
		}
	case *ast.UnaryExpr:
		if n.Op == token.AND {
			p.changes(n.X)
		}
	}
	return true
}

// selector checks a name of another package, and a method that can change its receiver.
func (p purist) selector(n *ast.SelectorExpr) {
	if s, ok := p.info.Selections[n]; ok && s.Kind() == types.MethodVal {
		if _, ok := s.Obj().Type().(*types.Signature).Recv().Type().(*types.Pointer); ok {
			p.changes(n.X)
		}
		return
	}
	id, ok := n.X.(*ast.Ident)
	if !ok {
		return
	}
	from, ok := p.info.Uses[id].(*types.PkgName)
	if !ok {
		return
	}
	for _, b := range forbidden {
		if b.path == from.Imported().Path() && slices.Contains(b.names, n.Sel.Name) {
			p.at(n.Pos(), "uses %s.%s: %s", b.path, n.Sel.Name, b.reason)
		}
	}
}

// call checks the built-in functions that print or that change their argument.
func (p purist) call(n *ast.CallExpr) {
	id, ok := ast.Unparen(n.Fun).(*ast.Ident)
	if !ok {
		return
	}
	if _, ok := p.info.Uses[id].(*types.Builtin); !ok {
		return
	}
	switch id.Name {
	case "print", "println":
		p.at(n.Pos(), "prints: the core does no I/O")
	case "clear", "copy", "delete":
		if len(n.Args) > 0 {
			p.changes(n.Args[0])
		}
	}
}

// changes complains when what an expression denotes is, or is part of, a package-level
// variable. Taking its address counts, for whoever has the address can write.
func (p purist) changes(e ast.Expr) {
	for {
		switch x := e.(type) {
		case *ast.SelectorExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.SliceExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		case *ast.ParenExpr:
			e = x.X
		case *ast.Ident:
			o := p.info.Uses[x]
			if o == nil { // the type checker gave up on the statement
				o = p.pkg.Scope().Lookup(x.Name)
			}
			if v, ok := o.(*types.Var); ok && v.Parent() == p.pkg.Scope() {
				p.at(x.Pos(), "can change the package-level variable %s: state belongs to a value that its owner holds", x.Name)
			}
			return
		default:
			return
		}
	}
}
