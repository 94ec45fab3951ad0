package lab

import (
	"flag"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the figures of docs/labs.md")

// TestDocument_HasTheFiguresOfTheCode: between the markers of each lab, docs/labs.md has
// what kvasir lab run NAME --format markdown prints, and before them the claims that do not hold.
// With -update it is rewritten; look at the difference before you commit it.
func TestDocument_HasTheFiguresOfTheCode(t *testing.T) {
	const file = "../docs/labs.md"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	document := string(text)
	at := 0
	part := func(name, want string) {
		begin, end := "<!-- "+name+" -->\n", "<!-- end "+strings.TrimPrefix(name, "lab ")+" -->\n"
		i, j := strings.Index(document, begin), strings.Index(document, end)
		if i < at || j < i {
			t.Errorf("%s: no markers of %s behind those before", file, name)
			return
		}
		i += len(begin)
		if got := document[i:j]; got != want {
			if !*update {
				t.Errorf("%s: %s is out of date; go test ./lab -run Document -update rewrites it", file, name)
			}
			document = document[:i] + want + document[j:]
		}
		at = strings.Index(document, end)
	}
	failures := Table{Columns: []Column{{Name: "lab"}, {Name: "claim"}, {Name: "article"}, {Name: "ours"}}}
	texts := map[string]string{}
	for _, l := range Catalog() {
		r := run(t, l.Name)
		texts[l.Name] = r.Markdown()
		for _, v := range r.Failures() {
			ours := v.Ours
			if v.Cause != "" {
				ours += ". " + v.Cause
			}
			failures.Rows = append(failures.Rows, []Cell{Text(l.Name), Text(v.Claim), Text(v.Section), Text(ours)})
		}
	}
	part("failures", "\n"+failures.Markdown()+"\n")
	for _, l := range Catalog() {
		part("lab "+l.Name, "\n"+l.About+"\n\n"+texts[l.Name]+"\n")
	}
	if *update && document != string(text) {
		if err := os.WriteFile(file, []byte(document), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
