// A lab's tables, in the words of the terminal: numbers to the right, words to the left, means
// with half of their interval.

import { h } from "./dom.js";
import { title } from "./text.js";

function cellOf(cell, text, first) {
  const value = cell !== null && typeof cell === "object" ? cell.mean : cell;
  const word = cell === null || typeof cell === "string";
  const [number, half] = word ? [text] : text.split(" ± ");
  const shown = [number, half ? h("span", { class: "half" }, ` ± ${half}`) : null];
  const attributes = { "data-value": value ?? "", "data-half": half ? cell.half_width : null, class: word ? null : "number" };
  return first && word ? h("th", { ...attributes, scope: "row" }, shown) : h("td", attributes, shown);
}

/** A table of a result. The article's own carries a mark, so that the two are not mistaken. */
export function table(t) {
  const words = t.columns.map((_, c) => t.rows.every((row) => row[c] === null || typeof row[c] === "string"));
  const id = `t-${t.name}`;
  return h("section", { class: t.name === "article" ? "table article" : "table" },
    h("h3", { id }, title(t.title)),
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-labelledby": id },
      h("table", { "data-table": t.name, "aria-labelledby": id },
        h("thead", null, h("tr", null, t.columns.map((c, i) =>
          h("th", { scope: "col", class: words[i] ? null : "number" }, c.name, c.unit ? h("span", { class: "unit" }, ` ${c.unit}`) : null)))),
        h("tbody", null, t.rows.map((row, r) => h("tr", null, row.map((cell, c) => cellOf(cell, t.text[r][c], c === 0))))))));
}
