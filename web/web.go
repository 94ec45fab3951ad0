// Package web is live and stands over all layers: the page, embedded. It serves the page's
// files, runs labs for it, and streams what the gateway does.
//
// What is served is the page's own files and nothing else: no request leaves for another
// origin, and the content security policy sees to it.
package web

import "embed"

// site is the page: plain ES modules, CSS and HTML, served as they are.
//
//go:embed site
var site embed.FS
