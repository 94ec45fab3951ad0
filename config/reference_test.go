package config

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"kvasir/selection/policy"
)

const (
	referenceBegin = "<!-- begin: written by go test ./config -update -->\n"
	referenceEnd   = "<!-- end -->\n"
)

// TestReference_IsCurrent keeps the tables of docs/configuration.md equal to what the
// structs say.
func TestReference_IsCurrent(t *testing.T) {
	file := filepath.Join("..", "docs", "configuration.md")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), referenceBegin)
	_, after, ok2 := strings.Cut(rest, referenceEnd)
	if !ok || !ok2 {
		t.Fatalf("%s lacks the lines %q and %q", file, referenceBegin, referenceEnd)
	}
	golden(t, file, before+referenceBegin+reference(t)+referenceEnd+after)
}

func reference(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	comments := fieldComments(t)
	table := func(title, prefix string, v any) {
		fmt.Fprintf(&b, "\n### %s\n\n| key | default | allowed | meaning |\n|---|---|---|---|\n", title)
		rows(&b, prefix, reflect.ValueOf(v), comments)
	}
	b.WriteString("\n## Keys\n")
	table("The router", "", Default())
	table("A client's key: `clients.keys[].…`", "", DefaultClientKey())
	table("A tenant: `tenants[].…`", "", DefaultTenant())
	table("A tenant's use of a model: `tenants[].models[].…`", "", DefaultTenantModel())
	table("A class: `classes[].…`", "", Class{})
	table("A model: `models.NAME.…`", "", DefaultModel())
	table("A pool: `pools[].…`", "", DefaultPool())
	table("An endpoint: `endpoints[].…`", "", DefaultEndpoint())
	table("A breaker's rule: `breaker[].…`, or `breaker.…` of one", "", DefaultBreakerRule())
	b.WriteString("\n## Policies\n\nParameters stand beside `name` in `policy`.\n\n| policy | picks | parameters and defaults | source |\n|---|---|---|---|\n")
	for _, rule := range policy.Catalog() {
		var parameters []string
		for _, f := range fieldsOf(rule.Params(), nil) {
			parameters = append(parameters, fmt.Sprintf("`%s: %s`", f.name, show(f.dst)))
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", rule.Name, rule.Doc, strings.Join(parameters, ", "), rule.Source)
	}
	b.WriteString("\n")
	return b.String()
}

// rows writes a line for each key of v and of the sections in it.
func rows(b *strings.Builder, prefix string, v reflect.Value, comments map[string]string) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name, ok := f.Tag.Lookup("config")
		if !ok {
			continue
		}
		if inherited := v.Type() == reflect.TypeFor[Model]() && f.Type == reflect.TypeFor[Timeouts](); inherited {
			fmt.Fprintf(b, "| `%s%s.…` | as in `timeouts` | as there | %s |\n", prefix, name, comments[v.Type().Name()+"."+f.Name])
			continue
		}
		if f.Type.Kind() == reflect.Struct && f.Type != reflect.TypeFor[Policy]() && f.Type != reflect.TypeFor[Secret]() {
			rows(b, prefix+name+".", v.Field(i), comments)
			continue
		}
		fmt.Fprintf(b, "| `%s%s` | %s | %s | %s |\n", prefix, name,
			code(defaultText(v.Field(i))), code(f.Tag.Get("allowed")), comments[v.Type().Name()+"."+f.Name])
	}
}

func defaultText(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case Policy:
		return x.Name
	case string:
		return x
	case Secret, KeyHash:
		return ""
	case time.Duration:
		return showDuration(x)
	}
	if v.Kind() == reflect.Slice {
		return ""
	}
	return show(v)
}

func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}

// fieldComments returns the comments of this package's structs as Struct.Field.
func fieldComments(t *testing.T) map[string]string {
	t.Helper()
	comments := map[string]string{}
	for _, name := range []string{"config.go", "model.go", "access.go", "tenant.go", "breaker.go"} {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			structure, ok := spec.Type.(*ast.StructType)
			if !ok {
				return true
			}
			for _, f := range structure.Fields.List {
				text := strings.Join(strings.Fields(f.Doc.Text()), " ")
				if f.Tag != nil && text == "" {
					t.Errorf("%s.%s has no comment", spec.Name, f.Names[0])
				}
				comments[spec.Name.Name+"."+f.Names[0].Name] = text
			}
			return true
		})
	}
	return comments
}
