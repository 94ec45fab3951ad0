// Decisions as they are made: which endpoint, what was traded for what, and, once it is known,
// what became of the call.

import { h } from "./dom.js";
import { decimal, seconds, short } from "./number.js";

const MOST = 60; // that are kept

/** The list of decisions; only(model) shows those of one model. */
export function decisions() {
  const list = h("ol", { class: "decisions" });
  const count = h("p", { class: "soft" }, "Picks are sampled, at most ten a second. None has come yet.");
  let paused = false, model = "";
  const pause = h("button", { type: "button", "aria-pressed": "false", onclick: () => {
    paused = !paused;
    pause.setAttribute("aria-pressed", String(paused));
    pause.textContent = paused ? "go on" : "pause";
  } }, "pause");
  const rows = new Map();
  return {
    node: h("section", { class: "stream", "aria-label": "decisions" }, h("div", { class: "pool-head" }, h("h2", null, "Decisions"), pause), count, list),
    only(name) {
      model = name;
      list.replaceChildren();
      rows.clear();
    },
    add(d) {
      if (paused || d.model !== model) return;
      const row = decision(d), key = `${d.call}`;
      rows.get(key)?.retried(d.attempt);
      rows.set(key, row);
      list.prepend(row.node);
      count.textContent = "Picks are sampled, at most ten a second. Open one for all that was weighed.";
      while (list.childElementCount > MOST) {
        const last = list.lastElementChild, { call } = last.dataset;
        if (rows.get(call)?.node === last) rows.delete(call); // a later attempt has a row of its own
        last.remove();
      }
    },
    ended(o) { rows.get(`${o.call}`)?.ended(o); },
  };
}

const calls = (n) => (n === 1 ? "1 call" : `${decimal(n, 0)} calls`);

/** What was given for what, in a sentence. */
function tradeText(d) {
  const t = d.traded, others = t.outstanding - t.least_outstanding;
  const load = others > 0 ? `${others} more ${others === 1 ? "call" : "calls"} before it than at ${t.least_outstanding_endpoint}` : "nobody has fewer calls";
  if (t.overlap_tokens === null) return `by load: ${load}`;
  const given = t.best_overlap_tokens - t.overlap_tokens;
  if (given > 0) {
    const there = d.candidates.find((c) => c.endpoint === t.best_overlap_endpoint)?.outstanding;
    const up = `${decimal(given, 0)} tokens given up that ${t.best_overlap_endpoint} holds`;
    if (there === undefined) return `${up}; ${load}`; // it is among those that are not shown
    return there > t.outstanding ? `balance over locality: ${up}, with ${calls(there)} before it there and ${t.outstanding} here`
      : `neither the most locality nor fewer calls: ${up}, with ${calls(there)} before it there and ${t.outstanding} here; open it for what weighed more`;
  }
  if (t.overlap_tokens === 0) return `nobody holds its prefix; ${load}`;
  if (others > 0) return `locality over balance: ${decimal(t.overlap_tokens, 0)} tokens held, for ${load}`;
  return `nothing traded: ${decimal(t.overlap_tokens, 0)} tokens held, and ${load}`;
}

function decision(d) {
  const outcome = h("span", { class: "outcome number" }, d.predicted_ttft_seconds ? `predicted ${seconds(d.predicted_ttft_seconds)}` : "under way");
  const details = h("details", { ontoggle: () => {
    if (details.open && details.childElementCount === 1) details.append(weighed(d)); // only what is looked at is built
  } }, h("summary", null,
    h("time", { datetime: new Date(d.at_unix_seconds * 1000).toISOString() }, new Date(d.at_unix_seconds * 1000).toLocaleTimeString()),
    h("b", null, d.chosen), h("span", { class: "reason" }, d.reason),
    h("span", { class: "trade" }, tradeText(d), d.shadow && !d.shadow.agrees ? h("span", { class: "otherwise" }, `${d.shadow.policy}: ${d.shadow.chosen}`) : null), outcome));
  return {
    node: h("li", { "data-call": d.call }, details),
    retried(attempt) { outcome.textContent = `failed, attempt ${attempt + 1} follows`; outcome.classList.add("bad"); },
    ended(o) {
      if (o.outcome !== "success") { outcome.textContent = o.outcome.replaceAll("_", " "); outcome.classList.add("bad"); return; }
      const predicted = o.predicted_ttft_seconds ? `predicted ${seconds(o.predicted_ttft_seconds)}, was ` : "";
      outcome.textContent = o.ttft_seconds === null ? `took ${seconds(o.e2e_seconds)}` : `${predicted}${seconds(o.ttft_seconds)}`;
    },
  };
}

function shadowText(s, chosen) {
  if (s.chosen === chosen) return `${s.policy} would have chosen the same (${s.reason}).`;
  return `${s.policy} would have chosen ${s.chosen} (${s.reason})${s.agrees ? ", which is as good to it" : ""}.`;
}

function weighed(d) {
  const parts = [...new Set(d.candidates.flatMap((c) => Object.keys(c.parts ?? {})))];
  const other = new Map((d.shadow?.candidates ?? []).map((c) => [c.endpoint, c]));
  const heads = ["endpoint", "score", "held tokens", "calls", "signal", ...parts.map((p) => p.replaceAll("_", " ")), ...(d.shadow ? [`score by ${d.shadow.policy}`] : [])];
  return h("div", { class: "weighed" },
    h("p", { class: "soft" }, [`attempt ${d.attempt + 1}`, `${decimal(d.input_tokens, 0)} tokens in`, `pool ${d.pool}`, d.conversation ? `conversation ${d.conversation}` : null, `call ${d.id}`].filter(Boolean).join(" · ")),
    h("p", { class: "soft" }, "Of the scores the lowest is chosen; what they are made of, and when it is ", h("b", null, d.reason), ", says the code of ",
      h("a", { href: `#/code/selection/policy/${d.policy.replaceAll("-", "_")}.go` }, d.policy), "."),
    d.shadow ? h("p", null, shadowText(d.shadow, d.chosen)) : null,
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `what was weighed for call ${d.call}` }, h("table", null,
      h("thead", null, h("tr", null, heads.map((t, i) => h("th", { scope: "col", class: i ? "number" : null }, t)))),
      h("tbody", null, d.candidates.map((c) => h("tr", { "data-chosen": c.endpoint === d.chosen },
        h("th", { scope: "row" }, c.endpoint === d.chosen ? "→ " : null, c.endpoint, c.endpoint === d.chosen ? h("span", { class: "visually-hidden" }, ", chosen") : null),
        ...[c.score === null ? "–" : short(c.score), c.prefix_trust ? decimal(c.overlap_tokens, 0) : "–", decimal(c.outstanding, 0), c.signal_age_seconds === null ? "none" : seconds(c.signal_age_seconds),
          ...parts.map((p) => (c.parts?.[p] === undefined ? "–" : short(c.parts[p]))), ...(d.shadow ? [short(other.get(c.endpoint)?.score ?? null)] : [])].map((text) => h("td", { class: "number" }, text))))))),
    d.candidates_omitted ? h("p", { class: "soft" }, `${d.candidates_omitted} more candidates are not shown.`) : null);
}
