// Package web is live and stands over all layers: the page, embedded. It serves the page's
// files, runs labs for it, and streams what the gateway does.
//
// What is served is the page's own files and nothing else: no request leaves for another
// origin, and the content security policy sees to it.
package web

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"

	"kvasir"
)

// site is the page: plain ES modules, CSS and HTML, served as they are.
//
//go:embed site
var site embed.FS

// Policy is the page's content security policy. The static export runs the labs in the
// browser, which needs to compile WebAssembly, and says it in its document, which cannot say
// who may frame it; nothing else differs.
func Policy(wasm bool) string {
	script, framed := "'self'", "; frame-ancestors 'none'"
	if wasm {
		script, framed = "'self' 'wasm-unsafe-eval'", ""
	}
	return "default-src 'none'; script-src " + script + "; style-src 'self'; img-src 'self'; connect-src 'self'; worker-src 'self'; " +
		"base-uri 'none'; form-action 'none'" + framed
}

// Page returns the handler of the page: its files at /, the code that it shows at /code/, and
// the labs at /v1/labs while labs, which is asked at each request, says that they are on. A path
// that is none of these is answered with 404. It is safe for concurrent use, if labs is.
func Page(labs func() bool) http.Handler {
	mux := http.NewServeMux()
	for _, f := range Files() {
		mux.Handle("GET /"+strings.TrimSuffix(f.Path, "index.html")+end(f.Path), f)
	}
	on := func(next http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if !labs() {
				refuse(w, http.StatusForbidden, "labs are off here (page: {labs: false}); kvasir lab run and kvasir demo have them")
				return
			}
			next(w, r)
		}
	}
	mux.HandleFunc("GET /v1/labs", on(listLabs))
	mux.HandleFunc("POST /v1/labs", on(newRuns().ask))
	return mux
}

// end closes the pattern of an index file, which is its folder.
func end(name string) string {
	if path.Base(name) == "index.html" {
		return "{$}"
	}
	return ""
}

// File is one file of the page.
type File struct {
	Path string // relative to the page's own
	Body []byte

	kind, tag string
}

// Files returns all files of the page, and of the code that it shows. The bytes must not be
// changed.
func Files() []File {
	var files []File
	add := func(from fs.FS, name, as string) {
		body, err := fs.ReadFile(from, name)
		if err != nil {
			panic(err) // the file is part of the binary
		}
		kind := mime.TypeByExtension(path.Ext(name))
		switch path.Ext(name) {
		case ".go":
			kind = "text/plain; charset=utf-8"
		case ".js": // some systems' tables have it as something that browsers refuse
			kind = "text/javascript; charset=utf-8"
		}
		sum := sha256.Sum256(body)
		files = append(files, File{Path: as, Body: body, kind: kind, tag: `"` + hex.EncodeToString(sum[:8]) + `"`})
	}
	each := func(from fs.FS, root, to string) {
		_ = fs.WalkDir(from, root, func(name string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && !strings.HasSuffix(name, "_test.go") {
				add(from, name, to+strings.TrimPrefix(name, "site/"))
			}
			return err
		})
	}
	each(site, "site", "")
	each(kvasir.Source, ".", "code/")
	return files
}

// ServeHTTP implements http.Handler.
func (f File) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	secure(h)
	h.Set("Content-Type", f.kind)
	h.Set("Cache-Control", "no-cache") // asked for anew, and answered with 304 while it is the same
	h.Set("Etag", f.tag)
	if r.Header.Get("If-None-Match") == f.tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	_, _ = w.Write(f.Body)
}

// secure sets what every answer to the page has.
func secure(h http.Header) {
	h.Set("Content-Security-Policy", Policy(false))
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
}
