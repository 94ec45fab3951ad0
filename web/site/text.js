// Words as they are shown.

import { h } from "./dom.js";

/** A title with a capital at its beginning, unless that is a letter of a formula. */
export const title = (text) => text.replace(/^[a-z]/, (c) => c.toUpperCase());

/** A sentence, in which what stands between backquotes is code, or a title where names has one for it. */
export const sentence = (text, names) => text.split("`").map((part, i) => (i % 2 === 0 ? part : names?.has(part) ? `“${title(names.get(part))}”` : h("code", null, part)));
