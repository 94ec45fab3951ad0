// A run to step through: one board for each variant, all at the same step.

import { h, s } from "./dom.js";
import { ink } from "./chart.js";
import { short } from "./number.js";
import { title } from "./text.js";

const STATES = {
  idle: ["·", "idle"], chosen: ["→", "chosen"], hit: ["✓", "hit"], miss: ["○", "miss"],
  prefill: ["▤", "prefill"], decode: ["▸", "decode"], stalled: ["❚❚", "stalled"],
};

/**
 * The section of a player. start is the step that is shown first, from 1; moved(step) hears of
 * every other one.
 */
export function player(p, start, moved) {
  let step = Math.max(0, Math.min(p.steps - 1, (start ?? 1) - 1));
  let timer = 0;
  const boards = p.boards.map((b) => board(b, p, (to) => jump(to)));
  const head = h("p", { class: "head" });
  const count = h("output", { "data-step": step + 1, class: "count" });
  const slider = h("input", { type: "range", min: 1, max: p.steps, value: step + 1, "aria-label": `${p.step} shown`, oninput: () => { pause(); go(slider.valueAsNumber - 1); } });
  const button = (what, label, sign, act) => h("button", { type: "button", "data-do": what, "aria-label": label, title: label, onclick: act }, sign);
  const play = button("play", "play", "▶", () => (timer ? pause() : run()));
  const section = h("section", { class: "player", "data-player": p.name, tabindex: 0, "aria-label": `${p.title}. Arrow keys step, space plays.` },
    h("h3", null, title(p.title)),
    h("div", { class: "transport" },
      button("first", "first step", "«", () => jump(0)), button("back", "step back", "‹", () => jump(step - 1)), play,
      button("next", "next step", "›", () => jump(step + 1)), button("last", "last step", "»", () => jump(p.steps - 1)),
      slider, count),
    head,
    h("div", { class: "boards", "data-count": boards.length }, boards.map((b) => b.node)));

  section.addEventListener("keydown", (e) => {
    if (e.target !== section && e.target.tagName !== "BUTTON") return; // inputs keep their keys
    const to = { ArrowRight: step + 1, ArrowLeft: step - 1, Home: 0, End: p.steps - 1 }[e.key];
    if (to !== undefined) {
      e.preventDefault();
      jump(to);
    } else if (e.key === " " && e.target === section) {
      e.preventDefault();
      if (timer) pause(); else run();
    }
  });

  function jump(to) { pause(); go(to); }

  function run() {
    if (step === p.steps - 1) go(0);
    play.textContent = "❚❚";
    play.setAttribute("aria-label", "pause");
    for (const b of boards) b.speaks(false); // nobody can listen as fast as that
    timer = setInterval(() => {
      if (step === p.steps - 1 || !section.isConnected) pause(); else go(step + 1);
    }, p.steps > 60 ? 250 : 700);
  }

  function pause() {
    clearInterval(timer);
    timer = 0;
    play.textContent = "▶";
    play.setAttribute("aria-label", "play");
    for (const b of boards) b.speaks(true);
  }

  function go(to) {
    const next = Math.max(0, Math.min(p.steps - 1, to));
    const changed = next !== step;
    step = next;
    show();
    if (changed) moved?.(step + 1);
  }

  function show() {
    slider.value = step + 1;
    slider.setAttribute("aria-valuetext", `${p.step} ${step + 1} of ${p.steps}`);
    count.dataset.step = step + 1;
    count.textContent = `${p.step} ${step + 1} / ${p.steps}`;
    head.textContent = p.boards[0]?.frames[step]?.head ?? "";
    for (const b of boards) b.show(step);
  }

  show();
  return section;
}

function board(b, p, jump) {
  const note = h("p", { class: "note", "aria-live": "polite" }), lanes = h("ul", { class: "lanes" });
  const facts = h("dl", { class: "facts" }), grid = h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `what is seen: ${b.name}` });
  const track = b.track ? makeTrack(b.track) : null, film = filmed(b) ? makeFilm(b, jump) : null;
  const node = h("section", { class: "board", "aria-label": b.name }, h("h4", null, b.name), note, lanes, film?.node, track?.node, facts, grid);
  return {
    node,
    speaks(on) { note.setAttribute("aria-live", on ? "polite" : "off"); },
    show(step) {
      const f = b.frames[step];
      if (!f) return;
      note.textContent = f.note || "\u00a0";
      lanes.replaceChildren(...f.lanes.map((lane) => laneOf(lane, p.most)));
      facts.replaceChildren(...(f.facts ?? []).map((x) => h("div", null, h("dt", null, x.name), h("dd", null, x.text))));
      grid.hidden = !f.grid;
      if (f.grid) grid.replaceChildren(gridOf(f.grid));
      track?.show(step);
      film?.show(step);
    },
  };
}

// The film: what every lane does in every step, side by side, where states say that.

const filmed = (b) => b.frames.length <= 80 && b.frames.some((f) => f.lanes.some((l) => l.state && l.state !== "chosen"));

function makeFilm(b, jump) {
  const lanes = b.frames[0].lanes.length, steps = b.frames.length, high = 16, wide = WIDE / steps;
  const cursor = s("rect", { y: 0, width: wide, height: lanes * high, class: "now" });
  const cells = b.frames.flatMap((f, i) => f.lanes.map((l, n) => (l.state && l.state !== "idle"
    ? s("rect", { x: i * wide + 0.5, y: n * high + 1, width: wide - 1, height: high - 2, class: `cell ${l.state}` }) : null)));
  const letters = wide < 9 ? [] : b.frames.flatMap((f, i) => f.lanes.map((l, n) => (l.state && l.state !== "idle" && l.text
    ? s("text", { x: (i + 0.5) * wide, y: n * high + 12, class: "letter" }, l.text.length > 2 ? l.text[0] : l.text) : null)));
  const svg = s("svg", { viewBox: `0 0 ${WIDE} ${lanes * high}`, class: "film", "aria-hidden": "true" }, cells.filter(Boolean), letters.filter(Boolean), cursor);
  svg.addEventListener("click", (e) => jump(Math.floor((e.offsetX / svg.clientWidth) * steps)));
  return { node: svg, show(step) { cursor.setAttribute("x", step * wide); } };
}

function laneOf(lane, most) {
  const [sign, word] = STATES[lane.state] ?? ["", ""];
  const item = h("li", { "data-state": lane.state || null }, h("span", { class: "lane-name" }, lane.name));
  if (most) {
    const share = (v) => `${Math.min(100, (100 * v) / most)}%`;
    const bar = h("span", { class: "lane-bar" });
    const old = h("span", { class: "lane-old" }), fresh = h("span", { class: "lane-fresh" });
    old.style.width = share(lane.value - (lane.fresh ?? 0));
    fresh.style.width = share(lane.fresh ?? 0);
    bar.append(old, fresh);
    item.append(bar, h("span", { class: "lane-value number" }, short(lane.value)));
  }
  item.append(h("span", { class: "lane-text" }, lane.text ?? ""), h("span", { class: "lane-state" }, sign ? h("span", { "aria-hidden": "true" }, sign) : null, ` ${word}`));
  return item;
}

function gridOf(g) {
  return h("table", { class: "grid" }, h("caption", null, g.title),
    h("thead", null, h("tr", null, g.columns.map((c) => h("th", { scope: "col" }, c)))),
    h("tbody", null, g.rows.map((row) => h("tr", null, row.map((cell, i) => (i === 0 ? h("th", { scope: "row" }, cell) : h("td", null, cell)))))));
}

const WIDE = 300, HIGH = 56;

function makeTrack(t) {
  const most = Math.max(1e-9, ...t.values.filter((v) => v !== null)), n = t.values.length;
  const x = (i) => (n > 1 ? (i / (n - 1)) * (WIDE - 4) + 2 : WIDE / 2), y = (v) => HIGH - 3 - ((v ?? 0) / most) * (HIGH - 8);
  const flags = new Set(t.flags ?? []);
  const cursor = s("line", { y1: 0, y2: HIGH, class: "cursor" });
  const now = h("b", { class: "number" });
  const svg = s("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, preserveAspectRatio: "none", class: "track", "aria-hidden": "true" },
    [...flags].map((i) => s("rect", { x: x(i) - 1.5, y: 0, width: 3, height: HIGH, class: "flag" })),
    s("path", { d: t.values.map((v, i) => `${i ? "L" : "M"}${x(i).toFixed(1)} ${y(v).toFixed(1)}`).join(""), class: `line ${ink(0)}`, "vector-effect": "non-scaling-stroke" }), cursor);
  return {
    node: h("div", { class: "tracked" }, h("p", null, t.label, ": ", now, h("span", { class: "peak" }, `, at most ${short(most)}${flags.size && t.flag ? `; marked: ${t.flag}` : ""}`)), svg),
    show(step) {
      cursor.setAttribute("x1", x(step));
      cursor.setAttribute("x2", x(step));
      now.textContent = `${short(t.values[step] ?? 0)}${flags.has(step) && t.flag ? ` (${t.flag})` : ""}`;
    },
  };
}
