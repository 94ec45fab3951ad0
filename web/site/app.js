// The page: which view is shown, and in which colours. Views are addressed after the #, so the
// page works from any folder of any server.

import { h } from "./dom.js";
import { hasServer, Refused, token } from "./backend.js";

const main = document.getElementById("main");
const map = main.firstElementChild; // it is part of the document, so that it is painted first
let leave = new AbortController();

// shown is called once another view is there, before it is filled: that may take seconds, in
// which the reader is at work in it already.
async function show(shown) {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  let [view, ...rest] = path.split("/");
  leave.abort();
  const { signal } = leave = new AbortController();
  mark(view === "" ? "map" : view);
  main.dataset.ready = "false";
  let node, filled;
  try {
    [view, ...rest] = [view, ...rest].map(decodeURIComponent); // fails where a % is no escape
    const found = await find(view, rest, new URLSearchParams(query), signal);
    [node, filled] = Array.isArray(found) ? found : [found];
  } catch (e) {
    node = failed(e);
  }
  if (signal.aborted) return;
  main.dataset.view = { "": "map", labs: rest[0] ? "lab" : "labs" }[view] ?? view;
  main.replaceChildren(node);
  delete document.documentElement.dataset.elsewhere;
  document.title = view === "" ? "Kvasir" : `${rest.at(-1) ?? view} · Kvasir`;
  shown?.();
  await filled?.();
  if (!signal.aborted) main.dataset.ready = "true";
}

// A view is a node, or a node and what fills it once it is shown.
async function find(view, rest, query, signal) {
  switch (view) {
    case "": return map;
    case "labs": {
      const { catalogue, lab } = await import("./labs.js");
      return rest[0] ? lab(rest[0], query, signal) : catalogue();
    }
    case "live": {
      if (!hasServer) return h("article", { class: "empty" }, h("h1", null, "Live"), h("p", null, "This copy of the page has no server. kvasir demo and kvasir serve show the live system on their admin address."));
      const { live } = await import("./live.js");
      return live(signal);
    }
    case "code": return (await import("./code.js")).code(rest.join("/"));
  }
  throw new Error(`There is no page “${view}”.`);
}

function failed(e) {
  if (e instanceof Refused && (e.status === 401 || e.status === 403)) return login(e);
  const words = e instanceof TypeError ? `${e.message}. Is the server still there?` : e.message;
  return h("article", { class: "empty" }, h("h1", null, "That did not work"), h("p", { role: "alert" }, words), h("p", null, h("a", { href: "#/" }, "Back to the map")));
}

function login(e) {
  const field = h("input", { type: "password", name: "token", id: "login", autocomplete: "off", required: true });
  return h("article", { class: "empty" }, h("h1", null, "A token is asked for"), h("p", { role: "alert" }, e.message),
    h("form", { class: "login", onsubmit: (event) => { event.preventDefault(); token.value = field.value; show(); } },
      h("label", { for: "login" }, "admin token"), field, h("button", null, "show")));
}

function mark(view) {
  for (const a of document.querySelectorAll("nav [data-nav]")) {
    if (a.dataset.nav === view) a.setAttribute("aria-current", "page"); else a.removeAttribute("aria-current");
  }
}

// Colours: the system's, or what was chosen.

const themes = ["", "light", "dark"];
const names = { "": "as the system has them", light: "light", dark: "dark" };
const button = document.querySelector("[data-do=theme]");

function paint(theme) {
  if (theme) document.documentElement.dataset.theme = theme; else delete document.documentElement.dataset.theme;
  button.setAttribute("aria-label", `Colours: ${names[theme]}`);
  button.title = button.getAttribute("aria-label");
  button.textContent = { "": "◐", light: "○", dark: "●" }[theme];
}

button.addEventListener("click", () => {
  const next = themes[(themes.indexOf(document.documentElement.dataset.theme ?? "") + 1) % themes.length];
  paint(next);
  try {
    if (next) localStorage.setItem("kvasir-theme", next); else localStorage.removeItem("kvasir-theme");
  } catch { /* no storage: for this visit only */ }
});
paint(document.documentElement.dataset.theme ?? "");

addEventListener("hashchange", () => show(() => {
  scrollTo(0, 0);
  main.focus({ preventScroll: true });
}));
show();
