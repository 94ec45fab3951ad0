// A lab's tables: numbers to the right, words to the left, means with half of their interval.

import { h } from "./dom.js";
import { decimal } from "./number.js";

/** What a cell says to people. */
export function cellText(cell, digits) {
  if (cell === null) return "";
  if (typeof cell === "string") return cell;
  if (typeof cell === "number") return decimal(cell, digits);
  return `${decimal(cell.mean, digits)} ± ${decimal(cell.half_width, digits)}`;
}

function cellOf(cell, digits, first) {
  const value = cell === null ? "" : typeof cell === "object" ? cell.mean : cell;
  const word = typeof cell === "string";
  const attributes = { "data-value": value, class: word || cell === null ? null : "number" };
  if (cell !== null && typeof cell === "object") attributes["data-half"] = cell.half_width;
  if (first && word) return h("th", { ...attributes, scope: "row" }, cell);
  if (cell !== null && typeof cell === "object") {
    return h("td", attributes, decimal(cell.mean, digits), h("span", { class: "half" }, ` ± ${decimal(cell.half_width, digits)}`));
  }
  return h("td", attributes, cellText(cell, digits));
}

/** A table of a result. The article's own carries a mark, so that the two are not mistaken. */
export function table(t) {
  const words = t.columns.map((_, c) => t.rows.every((row) => row[c] === null || typeof row[c] === "string"));
  const id = `t-${t.name}`;
  return h("section", { class: t.name === "article" ? "table article" : "table" },
    h("h3", { id }, t.title),
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-labelledby": id },
      h("table", { "data-table": t.name, "aria-labelledby": id },
        h("thead", null, h("tr", null, t.columns.map((c, i) =>
          h("th", { scope: "col", class: words[i] ? null : "number" }, c.name, c.unit ? h("span", { class: "unit" }, ` ${c.unit}`) : null)))),
        h("tbody", null, t.rows.map((row) => h("tr", null, row.map((cell, i) => cellOf(cell, t.columns[i].digits ?? 0, i === 0))))))));
}
