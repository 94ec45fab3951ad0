// The labs: a list, and for each one its settings, what to look at, and what a run gives. The
// catalogue says all there is to know of a lab, so one that is added appears by itself.

import { h, copy, settled } from "./dom.js";
import { ask, hasServer, list } from "./backend.js";
import { chart } from "./chart.js";
import { player } from "./player.js";
import { table } from "./table.js";
import { sentence, title } from "./text.js";

/** The list of labs as a view. */
export async function catalogue() {
  const labs = await list();
  return h("article", { class: "catalogue" },
    h("h1", null, "Labs"),
    h("p", { class: "about" }, "Experiments that run the code which decides live. Each has the article’s settings at first, and judges the article’s claims by its own figures."),
    h("ul", { class: "cards" }, labs.map((l) => h("li", null, h("a", { href: `#/labs/${l.name}` },
      h("b", null, l.name), h("span", null, title(l.title)), h("span", { class: "section" }, `section ${l.section}`))))));
}

/** A lab as a view, and what runs it; query has the settings that are not the article's. */
export async function lab(name, query, signal) {
  const labs = await list();
  const l = labs.find((x) => x.name === name);
  if (!l) throw new Error(`There is no lab “${name}”. There are: ${labs.map((x) => x.name).join(", ")}.`);
  const state = readState(l, query);
  const results = h("div", { class: "results" });
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  const link = h("a", { class: "permalink", href: "#" }, "link to this state");
  const command = h("code"), look = h("ul", null, l.look.map((x) => h("li", null, sentence(x))));
  const form = controls(l, state, () => later());
  const view = h("article", { class: "lab" },
    sidebar(labs, name),
    h("div", { class: "lab-main" },
      h("p", { class: "section" }, `article, section ${l.section}`),
      h("h1", null, l.title),
      h("details", { class: "about" }, h("summary", null, "what is played"), h("p", null, sentence(l.about))),
      l.look.length > 0 ? h("section", { class: "look", "aria-label": "what to look at" }, h("h2", null, "What to look at ", h("small", null, "(figures at the settings shown first)")), look) : null,
      form,
      h("div", { class: "reproduce" }, link, command,
        h("button", { type: "button", class: "quiet", onclick: (e) => copy(e.currentTarget, command.textContent) }, "copy"),
        h("button", { type: "button", class: "quiet", "data-do": "reset", onclick: reset }, "reset")),
      problem, results));

  // One run at a time: settings that change meanwhile are played after it, and those that were
  // passed over on the way never are.
  let running = false, again = false;
  async function run() {
    const main = view.closest("main");
    if (main) main.dataset.ready = "false";
    results.setAttribute("aria-busy", "true");
    remember(state.step);
    again = running;
    if (running) return;
    running = true;
    try {
      const r = await ask({ lab: name, settings: state.settings, seeds: l.seeded ? state.seeds : 0, ...(state.trace ? { trace: state.trace } : {}) }, signal);
      if (!again && !signal.aborted) {
        problem.hidden = true;
        remember(state.step);
        results.replaceChildren(...shown(r, state, remember));
        const titles = new Map(r.tables.map((t) => [t.name, t.title])); // a table is known by what stands above it
        look.replaceChildren(...l.look.map((x) => h("li", null, sentence(x, titles))));
      }
    } catch (e) {
      problem.textContent = e.message;
      problem.hidden = again;
    }
    running = false;
    if (signal.aborted) return;
    if (again) return run();
    results.setAttribute("aria-busy", "false");
    const now = view.closest("main");
    if (now) now.dataset.ready = "true";
  }
  function remember(step) {
    state.step = step;
    link.href = address();
    command.textContent = commandOf(l, state);
    addressed();
  }
  const address = () => `#/labs/${name}${queryOf(l, state)}`;
  // Not with each step of a player, as browsers refuse more than some changes in a while, and not
  // where somebody has gone elsewhere.
  let at = location.hash;
  const addressed = settled(() => {
    if (signal.aborted || location.hash !== at) return;
    history.replaceState(null, "", address());
    at = location.hash;
  }, 150);
  function reset() { // by the event where the address is the lab's own already, as after a refusal or with a trace
    if (location.hash === `#/labs/${name}`) dispatchEvent(new Event("hashchange")); else location.hash = `#/labs/${name}`;
  }
  const later = settled(run, 180);
  return [view, run];
}

function sidebar(labs, name) {
  const select = h("select", { "aria-label": "lab", onchange: () => { location.hash = `#/labs/${select.value}`; } },
    labs.map((l) => h("option", { value: l.name, selected: l.name === name }, l.name)));
  return h("nav", { class: "sidebar", "aria-label": "Labs" }, select,
    h("ul", null, labs.map((l) => h("li", null, h("a", { href: `#/labs/${l.name}`, "aria-current": l.name === name ? "page" : null, title: l.title }, l.name)))));
}

// What a run gives.

function shown(r, state, remember) {
  const out = [];
  const verdicts = r.verdicts ?? [];
  if (r.players?.length) out.push(h("section", { class: "players" }, r.players.map((p) => player(p, state.step, remember))));
  if (r.plots?.length) out.push(h("section", { class: "plots" }, r.plots.map(chart)));
  out.push(h("section", { class: "tables" }, r.tables.map(table)));
  if (verdicts.length) out.push(judged(verdicts));
  else out.push(h("p", { class: "soft" }, "The settings are not the article’s, so there is no verdict on its claims."));
  return out;
}

const SIGNS = { equals: "=", holds: "✓", "does not hold": "✗" };

function judged(verdicts) {
  const failed = verdicts.filter((v) => v.outcome === "does not hold").length;
  return h("section", { class: "verdicts" },
    h("h2", null, "The article’s claims"),
    h("p", { class: "soft" }, failed === 0 ? `All ${verdicts.length} hold here.` : `${verdicts.length - failed} of ${verdicts.length} hold here.`),
    h("ul", null, verdicts.map((v) => h("li", { "data-outcome": v.outcome },
      h("span", { class: "sign", "aria-hidden": "true" }, SIGNS[v.outcome]),
      h("div", null, h("p", { class: "claim" }, h("span", { class: "visually-hidden" }, `${v.outcome}: `), v.claim, h("span", { class: "section" }, ` ${v.section}`)),
        h("p", { class: "soft" }, v.article ? `article ${v.article}; ours ${v.ours}` : `ours ${v.ours}`),
        v.cause ? h("p", { class: "soft" }, sentence(v.cause)) : null)))));
}

// The state: settings, seeds, step and a trace; all but the trace are in the address.

function readState(l, query) {
  const state = { settings: {}, seeds: l.seeds, step: 1, trace: null };
  for (const [key, value] of query) {
    if (key === "seeds") state.seeds = Number(value) || 0;
    else if (key === "step") state.step = Math.max(1, Number(value) || 1);
    else state.settings[key] = value; // a name that the lab does not have is its answer's to refuse
  }
  return state;
}

const changedOf = (l, state) => Object.entries(state.settings).filter(([key, value]) => l.params.find((p) => p.key === key)?.default !== value);

function queryOf(l, state) {
  const q = new URLSearchParams(changedOf(l, state));
  if (l.seeded && state.seeds !== l.seeds) q.set("seeds", state.seeds);
  if (state.step > 1) q.set("step", state.step);
  return q.size ? `?${q}` : "";
}

function commandOf(l, state) {
  const words = ["kvasir lab run", l.name];
  for (const [key, value] of changedOf(l, state)) words.push(`--set ${key}=${value}`);
  if (l.seeded && state.seeds !== l.seeds) words.push(`--seeds ${state.seeds}`);
  if (state.trace) words.push(`--trace ${state.trace.name}`);
  return words.join(" ");
}

// The controls: a field for each setting, with a slider where it is a number.

function controls(l, state, changed) {
  const seeds = { key: "seeds", doc: "how often it is repeated; figures are means", kind: "whole", default: String(l.seeds), min: 1, max: l.max_seeds };
  const set = (key, value) => {
    if (key === "seeds") state.seeds = Number(value);
    else state.settings[key] = value;
    changed();
  };
  const all = l.seeded ? [...l.params, seeds] : l.params;
  return h("form", { class: "settings", "aria-label": "settings", onsubmit: (e) => e.preventDefault() },
    all.map((p) => control(p, p.key === "seeds" ? String(state.seeds) : state.settings[p.key] ?? p.default, (v) => set(p.key, v))),
    l.traced ? traceField(state, changed) : null);
}

function control(p, value, set) {
  const id = `set-${p.key}`;
  const label = h("label", { for: id }, h("span", { class: "key" }, p.key), h("span", { class: "doc" }, p.doc === p.key ? "how many" : sentence(p.doc)));
  switch (p.kind) {
    case "switch": {
      const box = h("input", { type: "checkbox", id, name: p.key, checked: value === "true", onchange: () => set(String(box.checked)) });
      return h("div", { class: "field switch" }, box, label);
    }
    case "choice": {
      const select = h("select", { id, name: p.key, onchange: () => set(select.value) }, p.choices.map((c) => h("option", { value: c, selected: c === value }, c)));
      return h("div", { class: "field" }, label, select);
    }
    default:
      return h("div", { class: "field" }, label, ...numberField(p, id, value, set));
  }
}

function numberField(p, id, value, set) {
  const whole = p.kind === "whole";
  const [low, high] = sensible(p);
  const log = low > 0 && high / low > 200;
  const at = (v) => (log ? (Math.log(v / low) / Math.log(high / low)) * 1000 : ((v - low) / (high - low)) * 1000);
  const of = (t) => {
    const v = log ? low * (high / low) ** (t / 1000) : low + ((high - low) * t) / 1000;
    return whole ? Math.round(v) : Number(v.toPrecision(3));
  };
  const clamp = (v) => Math.max(0, Math.min(1000, at(v)));
  const input = h("input", {
    type: "number", id, name: p.key, value, min: p.min, max: p.max, step: whole ? 1 : "any", required: true, "aria-describedby": `${id}-wrong`, inputmode: whole ? "numeric" : "decimal",
    oninput: () => {
      if (!valid()) return;
      slider.value = clamp(input.valueAsNumber);
      slider.setAttribute("aria-valuetext", input.value);
      set(input.value);
    },
  });
  const wrong = h("span", { class: "invalid", id: `${id}-wrong`, "aria-live": "polite", hidden: true });
  const valid = () => {
    const ok = input.checkValidity();
    if (ok) input.removeAttribute("aria-invalid"); else input.setAttribute("aria-invalid", "true");
    wrong.textContent = `a ${whole ? "whole " : ""}number from ${p.min} to ${p.max}`;
    wrong.hidden = ok;
    return ok;
  };
  const slider = h("input", {
    type: "range", min: 0, max: 1000, step: whole && high - low < 1000 && !log ? 1000 / (high - low) : 1, value: clamp(Number(value)), "aria-label": `${p.key}, as a slider`, "aria-valuetext": value,
    oninput: () => {
      input.value = Math.max(p.min, Math.min(p.max, of(slider.valueAsNumber)));
      valid();
      slider.setAttribute("aria-valuetext", input.value);
      set(input.value);
    },
  });
  valid(); // an address may say anything
  return [slider, input, wrong];
}

// A slider's ends: the whole range where that is handy, else a tenth to ten times the default.
function sensible(p) {
  const d = Number(p.default);
  if (p.max - p.min <= 100 * Math.max(1, d - p.min) || d <= 0) return [p.min, p.max];
  return [Math.max(p.min, d / 10), Math.min(p.max, d * 10)];
}

const MOST = 8 << 20; // bytes of a trace, which a question has in base64: lab.MaxAsked bounds that

function traceField(state, changed) {
  const says = h("span", { class: "doc" }, hasServer ? "goes to this server alone" : "stays in this browser");
  const input = h("input", {
    type: "file", id: "set-trace", name: "trace",
    onchange: async () => {
      const file = input.files[0];
      if (!file) { state.trace = null; changed(); return; }
      if (file.size > MOST) { says.textContent = `${file.name} has ${file.size} bytes; at most ${MOST} are taken`; return; }
      state.trace = { name: file.name, format: "", data: await base64(file) };
      says.textContent = `${file.name} is not part of the link`;
      changed();
    },
  });
  return h("div", { class: "field" }, h("label", { for: "set-trace" }, h("span", { class: "key" }, "your own trace"), says), input);
}

const base64 = (file) => new Promise((resolve, reject) => {
  const reader = new FileReader();
  reader.onload = () => resolve(reader.result.slice(reader.result.indexOf(",") + 1));
  reader.onerror = () => reject(reader.error);
  reader.readAsDataURL(file);
});
