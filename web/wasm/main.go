//go:build js && wasm

// Command wasm is live and stands over all layers: the labs for a page that has no server. It
// is compiled to WebAssembly and runs in a worker of the browser (web/site/worker.js), where it
// answers what the API answers elsewhere, with the same bytes.
//
// It registers two functions on the global object kvasir; both return a text, or an Error, since
// a Go function cannot throw:
//
//	kvasir.list()    the catalogue of labs, as GET /v1/labs has it
//	kvasir.ask(text) what the lab answers to a question (lab.Asked), as POST /v1/labs does
package main

import (
	"syscall/js"

	"kvasir/lab"
)

func main() {
	js.Global().Set("kvasir", map[string]any{
		"list": js.FuncOf(func(js.Value, []js.Value) any {
			return answer(lab.Listing())
		}),
		"ask": js.FuncOf(func(_ js.Value, args []js.Value) any {
			if len(args) != 1 || args[0].Type() != js.TypeString {
				return failure("kvasir.ask takes one text, the question as JSON")
			}
			return answer(lab.Answer([]byte(args[0].String()), nil))
		}),
	})
	select {} // the functions are there for as long as the program runs
}

func answer(text []byte, err error) any {
	if err != nil {
		return failure(err.Error())
	}
	return string(text)
}

func failure(message string) any { return js.Global().Get("Error").New(message) }
