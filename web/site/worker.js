// The labs in a page without a server: a worker that runs kvasir.wasm, so that the page's thread
// is never blocked.
//
// A message is {id, kind: "list"} or {id, kind: "ask", text}, the text being a question as POST
// /v1/labs takes it. What comes back is {id, text}, with what the API would answer, or {id, error}
// with what is wrong. Questions are answered in their order, one at a time.

"use strict";

importScripts("wasm_exec.js"); // Go's own, which sets Go

// load starts the program and returns the functions that it registers. Where a file server does
// not know the type of .wasm, it is compiled from its bytes.
async function load() {
  const response = await fetch("kvasir.wasm");
  if (!response.ok) throw new Error(`kvasir.wasm: ${response.status} ${response.statusText}`);
  const go = new Go();
  const typed = response.headers.get("Content-Type") === "application/wasm";
  const { instance } = typed
    ? await WebAssembly.instantiateStreaming(response, go.importObject)
    : await WebAssembly.instantiate(await response.arrayBuffer(), go.importObject);
  go.run(instance); // never ends, but where the program breaks down
  return self.kvasir;
}

const loaded = load();

// answer returns a text. What the program gives is a text or an Error; it gives nothing where it
// has broken down.
async function answer({ kind, text }) {
  const labs = await loaded;
  const given = kind === "list" ? labs.list() : labs.ask(text);
  if (typeof given !== "string") throw given ?? new Error("the labs broke down; reload the page");
  return given;
}

let turn = Promise.resolve();

self.onmessage = ({ data }) => {
  turn = turn.then(async () => {
    try {
      self.postMessage({ id: data.id, text: await answer(data) });
    } catch (error) {
      self.postMessage({ id: data.id, error: error.message });
    }
  });
};
