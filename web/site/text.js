// Words as they are shown.

import { h } from "./dom.js";

/** A title with a capital at its beginning, unless that is a letter of a formula. */
export const title = (text) => text.replace(/^[a-z]/, (c) => c.toUpperCase());

/** A sentence, in which what stands between backquotes is code. */
export const sentence = (text) => text.split("`").map((part, i) => (i % 2 ? h("code", null, part) : part));
