// The code of a rule, as it was compiled.

import { h } from "./dom.js";
import { call } from "./backend.js";

/** The view of a source file. */
export async function code(path) {
  const text = await (await call(`code/${path.split("/").map(encodeURIComponent).join("/")}`)).text();
  const lines = text.replace(/\n$/, "").split("\n");
  return h("article", { class: "code" },
    h("h1", null, path.split("/").pop()),
    h("p", { class: "path" }, path),
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": path },
      h("pre", null, h("code", null, lines.map((line) => h("span", { class: /^\s*\/\//.test(line) ? "line comment" : "line" }, `${line}\n`))))));
}
