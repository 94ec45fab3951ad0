package web

import "strings"

// Policy is the page's content security policy: its own scripts, styles, images and answers, and
// nothing of anybody else. With wasm it is that of the static export, which says it in its
// document and also runs WebAssembly.
func Policy(wasm bool) string {
	script := "script-src 'self'"
	if wasm {
		script += " 'wasm-unsafe-eval'"
	}
	rules := []string{"default-src 'none'", script, "style-src 'self'", "img-src 'self'", "font-src 'self'",
		"connect-src 'self'", "base-uri 'none'", "form-action 'none'"}
	if !wasm { // a document cannot say it of itself: browsers complain of it there
		rules = append(rules, "frame-ancestors 'none'")
	}
	return strings.Join(rules, "; ")
}
