package page

import (
	"slices"
	"strings"
	"testing"
)

// A source file's path is part of the page's address, which anybody may have made. One that leads
// out of the code asks the server for nothing, least of all with the token.
func TestCode_LeadsNowhereElse(t *testing.T) {
	base := demo(t)
	for _, path := range []string{
		"", "../metrics", "..%2Fmetrics", "%2e%2e/metrics", "./../metrics", "selection/../../metrics", "selection//policy", "selection/policy/", "selection/./policy/random.go",
	} {
		b := open(t, desktop, base+"#/code/"+path)
		if text := eval[string](b, "document.querySelector('main').innerText"); !strings.Contains(text, "is no file of the code") {
			t.Errorf("%q: %.200s", path, text)
		}
		b.mu.Lock()
		asked := slices.Clone(b.asked)
		b.mu.Unlock()
		for _, url := range asked {
			if strings.HasSuffix(url, "/metrics") || strings.Contains(url, "/code/") {
				t.Errorf("%q: %s is asked for", path, url)
			}
		}
	}
}
