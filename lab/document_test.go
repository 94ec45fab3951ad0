package lab

import (
	"flag"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the figures of docs/labs.md")

// TestDocument_HasTheFiguresOfTheCode: between the markers of each lab, docs/labs.md has
// what kvasir lab run NAME --format markdown prints. With -update it is rewritten; look at
// the difference before you commit it.
func TestDocument_HasTheFiguresOfTheCode(t *testing.T) {
	const file = "../docs/labs.md"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	document := string(text)
	at := 0
	for _, l := range Catalog() {
		begin, end := "<!-- lab "+l.Name+" -->\n", "<!-- end "+l.Name+" -->\n"
		i, j := strings.Index(document, begin), strings.Index(document, end)
		if i < at || j < i {
			t.Errorf("%s: no markers of %s behind those of the lab before", file, l.Name)
			continue
		}
		i += len(begin)
		want := "\n" + l.About + "\n\n" + run(t, l.Name).Markdown() + "\n"
		if got := document[i:j]; got != want {
			if !*update {
				t.Errorf("%s: %s is out of date; go test ./lab -run Document -update rewrites it", file, l.Name)
			}
			document = document[:i] + want + document[j:]
		}
		at = strings.Index(document, end)
	}
	if *update && document != string(text) {
		if err := os.WriteFile(file, []byte(document), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
