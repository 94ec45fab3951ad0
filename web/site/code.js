// The code of a rule, as it was compiled.

import { h } from "./dom.js";
import { call } from "./backend.js";

/** The view of a source file. Its path comes from the address, which anybody may have made. */
export async function code(path) {
  const parts = path.split("/");
  if (parts.some((part) => ["", ".", ".."].includes(part))) throw new Error(`${path} is no file of the code`); // it would lead elsewhere
  const text = await (await call(`code/${parts.map(encodeURIComponent).join("/")}`)).text();
  const lines = text.replace(/\n$/, "").split("\n");
  return h("article", { class: "code" },
    h("h1", null, path.split("/").pop()),
    h("p", { class: "path" }, path),
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": path },
      h("pre", null, h("code", null, lines.map((line) => h("span", { class: /^\s*\/\//.test(line) ? "line comment" : "line" }, `${line}\n`))))));
}
