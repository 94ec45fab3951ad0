// Charts as SVG, drawn for the width that they have. Series differ by colour and by dash or
// mark, so that colour alone never tells them apart; what a chart says is written below it.

import { h, s } from "./dom.js";
import { logTicks, short, ticks } from "./number.js";
import { title } from "./text.js";

const DASHES = ["", "7 4", "2 3", "9 3 2 3", "1 3", "12 4"];
const MARKS = ["circle", "square", "triangle", "diamond", "cross", "ring"];

/** The class that gives a series its colour. */
export const ink = (i) => `ink${i % 6}`;

/**
 * A figure of a plot as labs give it: title, legend, drawing, and what it says. Its update
 * method shows another plot in its place.
 */
export function chart(plot) {
  const hidden = new Set();
  const drawing = h("div", { class: "drawing", "data-kind": plot.kind });
  const readout = h("p", { class: "readout", "aria-live": "polite" });
  const key = h("div"), says = h("figcaption");
  const figure = h("figure", { class: "chart", "data-plot": plot.name }, h("h3", null, title(plot.title)), key, drawing, plot.kind === "bars" || plot.kind === "dots" ? null : readout, says);
  const cursor = { x: null, readout };
  let width = 0, names = "";
  const draw = () => {
    // What is read by keyboard stands still until that is over: drawn anew it would be read out anew.
    if (width < 40 || drawing.querySelector("svg:focus-visible")) return;
    const focused = drawing.contains(document.activeElement);
    drawing.replaceChildren(plot.kind === "bars" ? bars(plot, width, hidden) : plane(plot, width, hidden, cursor));
    if (focused) drawing.firstElementChild.focus({ preventScroll: true });
  };
  figure.update = (next) => {
    plot = next;
    says.textContent = plot.says ?? "";
    const now = plot.series.map((x) => x.name).join("\n");
    if (now !== names) {
      names = now;
      hidden.clear();
      key.replaceChildren(...(plot.series.length > 1 ? [legend(plot, hidden, draw)] : []));
    }
    if (plot.kind === "bars") drawing.style.height = `${barsHeight(plot)}px`;
    draw();
  };
  figure.update(plot);
  drawing.addEventListener("focusout", () => requestAnimationFrame(draw));
  new ResizeObserver(([entry]) => {
    const w = Math.floor(entry.contentRect.width);
    if (w !== width) { width = w; draw(); }
  }).observe(drawing);
  return figure;
}

function legend(plot, hidden, redraw) {
  return h("ul", { class: "legend" }, plot.series.map((series, i) => {
    const button = h("button", {
      type: "button", "aria-pressed": "true", class: ink(i),
      onclick: () => {
        if (hidden.has(i)) hidden.delete(i); else hidden.add(i);
        if (hidden.size === plot.series.length) hidden.clear(); // an empty chart says nothing
        for (const [j, b] of [...button.closest("ul").querySelectorAll("button")].entries()) b.setAttribute("aria-pressed", String(!hidden.has(j)));
        redraw();
      },
    }, swatch(plot.kind, i), series.name);
    return h("li", null, button);
  }));
}

function swatch(kind, i) {
  const svg = s("svg", { width: 26, height: 10, "aria-hidden": "true" });
  if (kind === "dots") svg.append(mark(MARKS[i % 6], 13, 5, `dot ${ink(i)}`));
  else if (kind === "bars") svg.append(s("rect", { x: 7, y: 0, width: 12, height: 10, class: `bar ${ink(i)}` }));
  else svg.append(s("line", { x1: 1, y1: 5, x2: 25, y2: 5, class: `line ${ink(i)}`, "stroke-dasharray": DASHES[i % 6] }));
  return svg;
}

function mark(kind, x, y, cls) {
  const r = 3.5;
  switch (kind) {
    case "square": return s("rect", { x: x - r, y: y - r, width: 2 * r, height: 2 * r, class: cls });
    case "triangle": return s("path", { d: `M${x} ${y - r - 0.5}l${r + 0.5} ${2 * r}h${-2 * r - 1}z`, class: cls });
    case "diamond": return s("path", { d: `M${x} ${y - r - 1}l${r + 1} ${r + 1}l${-r - 1} ${r + 1}l${-r - 1} ${-r - 1}z`, class: cls });
    case "cross": return s("path", { d: `M${x - r} ${y - r}l${2 * r} ${2 * r}M${x + r} ${y - r}l${-2 * r} ${2 * r}`, class: `${cls} open` });
    case "ring": return s("circle", { cx: x, cy: y, r, class: `${cls} open` });
    default: return s("circle", { cx: x, cy: y, r, class: cls });
  }
}

// A plane with two axes: lines, steps and dots.

function scale(low, high, from, to, log) {
  if (log) {
    const a = Math.log10(low), b = Math.log10(high) - a || 1;
    return (v) => from + ((Math.log10(v) - a) / b) * (to - from);
  }
  const d = high - low || 1;
  return (v) => from + ((v - low) / d) * (to - from);
}

function extent(plot, axis, hidden) {
  let low = Infinity, high = -Infinity;
  const see = (v) => {
    if (v === null || (plot[axis].log && v <= 0)) return;
    low = Math.min(low, v);
    high = Math.max(high, v);
  };
  plot.series.forEach((series, i) => {
    if (hidden.has(i)) return;
    series[axis].forEach((v, n) => {
      see(v);
      if (axis === "y" && series.half?.[n]) { see(v - series.half[n]); see(v + series.half[n]); }
    });
  });
  for (const m of plot.marks ?? []) if (m.axis === axis) see(m.at);
  if (low > high) return [0, 1];
  if (plot[axis].names) return [-0.5, plot[axis].names.length - 0.5];
  if (!plot[axis].log && (axis === "y" || low / high < 0.4) && low > 0) low = 0;
  if (plot[axis].most) high = Math.min(high, plot[axis].most);
  if (high === low) high = low + 1;
  if (plot.kind === "dots") { // whole dots, at the edges too
    const room = plot[axis].log ? (high / low) ** 0.04 : (high - low) * 0.04;
    return plot[axis].log ? [low / room, high * room] : [low === 0 ? 0 : low - room, high + room];
  }
  if (axis === "y" && !plot.y.log && !plot.y.most) high += (high - low) * 0.04;
  return [low, high];
}

function plane(plot, width, hidden, cursor) {
  const height = plot.y.names ? Math.max(280, 20 * plot.y.names.length + 70) : 280, top = 22, bottom = 40, right = 12;
  let [x0, x1] = extent(plot, "x", hidden), [y0, y1] = extent(plot, "y", hidden);
  if (plot.marks?.some((m) => m.axis === "diagonal")) { // what lies on it is equal
    x0 = y0 = Math.min(x0, y0);
    x1 = y1 = Math.max(x1, y1);
  }
  const yTicks = plot.y.names ? plot.y.names.map((_, i) => i) : plot.y.log ? logTicks(y0, y1) : ticks(y0, y1, 5);
  const yText = (v) => plot.y.names?.[v] ?? short(v);
  const left = 14 + 7 * Math.max(2, ...yTicks.map((v) => yText(v).length));
  const px = scale(x0, x1, left, width - right, plot.x.log), py = scale(y0, y1, height - bottom, top, plot.y.log);
  const xTicks = plot.x.names ? plot.x.names.map((_, i) => i) : plot.x.log ? logTicks(x0, x1) : ticks(x0, x1, width / 90);
  const svg = s("svg", {
    viewBox: `0 0 ${width} ${height}`, width, height, role: "img", tabindex: 0,
    "aria-label": `${plot.title}. ${plot.says ?? ""} Arrow keys read the values.`,
  });
  for (const v of yTicks) {
    svg.append(s("line", { x1: left, x2: width - right, y1: py(v), y2: py(v), class: "grid" }),
      s("text", { x: left - 6, y: py(v) + 4, class: "tick end" }, yText(v)));
  }
  let taken = -Infinity; // to where the last tick's text reaches
  for (const v of xTicks) {
    const text = plot.x.names?.[v] ?? short(v), half = 3.4 * text.length;
    const x = Math.min(px(v), width - half - 1);
    if (x - half < taken + 4) continue;
    taken = x + half;
    svg.append(s("line", { x1: px(v), x2: px(v), y1: height - bottom, y2: height - bottom + 4, class: "grid" }),
      s("text", { x, y: height - bottom + 17, class: "tick middle" }, text));
  }
  svg.append(s("line", { x1: left, x2: width - right, y1: height - bottom, y2: height - bottom, class: "axis" }),
    s("text", { x: left - 6, y: 12, class: "label" }, named(plot.y)),
    s("text", { x: width - right, y: height - 6, class: "label end" }, named(plot.x)));
  const clip = `c${clips++}`;
  svg.append(s("clipPath", { id: clip }, s("rect", { x: left, y: top - 6, width: width - right - left, height: height - bottom - top + 6 })));
  const body = s("g", { "clip-path": `url(#${clip})` });
  svg.append(body);
  for (const m of plot.marks ?? []) body.append(...markLine(m, px, py, left, width - right, top, height - bottom, [x0, x1, y0, y1]));
  plot.series.forEach((series, i) => {
    if (!hidden.has(i)) body.append(...drawSeries(plot, series, i, px, py, width - right));
  });
  if (plot.kind !== "dots") attachCursor(svg, plot, hidden, px, [top, height - bottom, left], cursor);
  return svg;
}

let clips = 0;

const named = (axis) => (axis.unit ? `${axis.label}, ${axis.unit}` : axis.label);

function markLine(m, px, py, left, right, top, bottom, [x0, x1, y0, y1]) {
  if (m.axis === "diagonal") {
    const low = Math.max(x0, y0), high = Math.min(x1, y1);
    return [s("line", { x1: px(low), y1: py(low), x2: px(high), y2: py(high), class: "mark" }),
      s("text", { x: px(high) - 6, y: py(high) + 14, class: "note end" }, m.label)];
  }
  if (m.axis === "x") {
    const x = px(m.at), late = x > (left + right) / 2;
    return [s("line", { x1: x, x2: x, y1: top, y2: bottom, class: "mark" }),
      s("text", { x: late ? x - 5 : x + 5, y: top + 9, class: late ? "note end" : "note" }, m.label)];
  }
  const y = py(m.at);
  return [s("line", { x1: left, x2: right, y1: y, y2: y, class: "mark" }), s("text", { x: right - 4, y: y - 5, class: "note end" }, m.label)];
}

function drawSeries(plot, series, i, px, py, end) {
  const out = [];
  const usable = (n) => series.x[n] !== null && series.y[n] !== null && !(plot.x.log && series.x[n] <= 0) && !(plot.y.log && series.y[n] <= 0);
  if (plot.kind === "dots") {
    series.x.forEach((x, n) => {
      if (!usable(n)) return;
      out.push(mark(MARKS[i % 6], px(x), py(series.y[n]), `dot ${ink(i)}`));
      if (series.names) {
        const late = px(x) + 7 + 7 * series.names[n].length > end; // no room to its right
        out.push(s("text", { x: px(x) + (late ? -7 : 7), y: py(series.y[n]) + 4, class: late ? "note end" : "note" }, series.names[n]));
      }
    });
    return out;
  }
  if (series.half?.some((v) => v > 0)) out.push(band(series, i, usable, px, py));
  let d = "", pen = false, last = 0;
  series.x.forEach((x, n) => {
    if (!usable(n)) { pen = false; return; }
    const X = px(x).toFixed(1), Y = py(series.y[n]).toFixed(1);
    d += !pen ? `M${X} ${Y}` : plot.kind === "steps" ? `V${last}H${X}V${Y}` : `L${X} ${Y}`;
    pen = true;
    last = Y;
  });
  out.push(s("path", { d, class: `line ${ink(i)}`, "stroke-dasharray": DASHES[i % 6] || null }));
  if (series.x.length <= 12) series.x.forEach((x, n) => { if (usable(n)) out.push(mark(MARKS[i % 6], px(x), py(series.y[n]), `dot ${ink(i)}`)); });
  return out;
}

function band(series, i, usable, px, py) {
  const there = series.x.map((_, n) => n).filter(usable);
  const up = there.map((n) => `${px(series.x[n]).toFixed(1)} ${py(series.y[n] + series.half[n]).toFixed(1)}`);
  const down = there.toReversed().map((n) => `${px(series.x[n]).toFixed(1)} ${py(series.y[n] - series.half[n]).toFixed(1)}`);
  return s("path", { d: `M${[...up, ...down].join("L")}Z`, class: `band ${ink(i)}` });
}

// The cursor follows the pointer or the arrow keys and reads all series at one x. It outlasts the
// drawing: the next one of the same chart has it where it was.
function attachCursor(svg, plot, hidden, px, [top, bottom, left], cursor) {
  const shown = plot.series.map((series, i) => ({ series, i })).filter(({ i }) => !hidden.has(i));
  const xs = [...new Set(shown.flatMap(({ series }) => series.x))].filter((x) => x !== null).sort((a, b) => a - b);
  if (xs.length === 0) return;
  const line = s("line", { y1: top, y2: bottom, class: "cursor", visibility: "hidden" });
  svg.append(line);
  let at = -1;
  const read = (n) => {
    at = Math.max(0, Math.min(xs.length - 1, n));
    const x = cursor.x = xs[at];
    line.setAttribute("x1", px(x));
    line.setAttribute("x2", px(x));
    line.setAttribute("visibility", "visible");
    const parts = shown.map(({ series, i }) => {
      const y = valueAt(series, x, plot.kind);
      return y === null ? null : h("span", { class: ink(i) }, h("b", null, shown.length > 1 ? series.name : named(plot.y)), ` ${plot.y.names?.[y] ?? short(y)}`);
    });
    cursor.readout.replaceChildren(h("span", null, `${plot.x.label} ${plot.x.names?.[x] ?? short(x)}${plot.x.unit ? ` ${plot.x.unit}` : ""}`), ...parts.filter(Boolean));
  };
  const nearest = (x) => {
    let best = 0;
    xs.forEach((v, n) => { if (Math.abs(px(v) - x) < Math.abs(px(xs[best]) - x)) best = n; });
    return best;
  };
  if (cursor.x !== null) read(nearest(px(cursor.x)));
  svg.addEventListener("pointermove", (e) => {
    const x = e.offsetX * (svg.viewBox.baseVal.width / svg.clientWidth || 1);
    if (x >= left) read(nearest(x));
  });
  svg.addEventListener("pointerleave", () => {
    cursor.x = null;
    line.setAttribute("visibility", "hidden");
    cursor.readout.replaceChildren();
  });
  svg.addEventListener("keydown", (e) => {
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: xs.length - 1 }[e.key];
    if (to === undefined) return;
    e.preventDefault();
    read(to);
  });
}

function valueAt(series, x, kind) {
  let n = series.x.indexOf(x);
  if (n < 0 && kind === "steps") n = series.x.findLastIndex((v) => v <= x);
  return n < 0 ? null : series.y[n];
}

// Bars lie: a row for each name, so that names of any length can be read.

const barRows = (plot) => plot.x.names ?? plot.series[0].x.map(short);
const rowHeight = (plot) => Math.max(26, 16 * plot.series.length + 10);
const markRoom = (plot) => (plot.marks?.length ? 18 : 0); // for the marks' labels, above the bars
const barsHeight = (plot) => markRoom(plot) + barRows(plot).length * rowHeight(plot) + 30;

function bars(plot, width, hidden) {
  const rows = barRows(plot), each = rowHeight(plot), head = markRoom(plot), height = barsHeight(plot);
  const left = Math.min(width * 0.42, 12 + 6.6 * Math.max(...rows.map((r) => r.length))), right = 76;
  const [, high] = extent(plot, "y", hidden);
  const px = scale(0, high, left, width - right, false);
  const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": `${plot.title}. ${plot.says ?? ""}` });
  for (const v of ticks(0, high, (width - left) / 110)) {
    svg.append(s("line", { x1: px(v), x2: px(v), y1: head, y2: height - 28, class: "grid" }), s("text", { x: px(v), y: height - 14, class: "tick middle" }, short(v)));
  }
  svg.append(s("text", { x: width - 4, y: height - 1, class: "label end" }, named(plot.y)));
  rows.forEach((name, row) => {
    const y = head + row * each;
    svg.append(s("text", { x: left - 8, y: y + each / 2 + 4, class: "name end" }, clipped(name, left)));
    const shown = plot.series.map((series, i) => ({ series, i })).filter(({ i }) => !hidden.has(i));
    const thick = Math.min(18, (each - 8) / shown.length);
    shown.forEach(({ series, i }, k) => {
      const n = series.x.indexOf(row), v = n < 0 ? null : series.y[n];
      if (v === null) return;
      const top = y + (each - thick * shown.length) / 2 + k * thick, middle = top + thick / 2;
      const end = px(Math.min(v, high)), half = series.half?.[n] ?? 0;
      svg.append(s("rect", { x: left, y: top + 1, width: Math.max(1, end - left), height: thick - 2, class: `bar ${ink(i)}` }));
      if (half > 0) {
        const a = px(Math.max(0, v - half)), b = px(Math.min(high, v + half));
        svg.append(s("path", { d: `M${a} ${middle}H${b}M${a} ${middle - 3}v6M${b} ${middle - 3}v6`, class: "whisker" }));
      }
      svg.append(s("text", { x: Math.max(end, px(Math.min(high, v + half))) + 6, y: middle + 4, class: "value" }, short(v)));
    });
  });
  for (const m of plot.marks ?? []) {
    const late = px(m.at) > (left + width) / 2;
    svg.append(s("line", { x1: px(m.at), x2: px(m.at), y1: 4, y2: height - 28, class: "mark" }),
      s("text", { x: px(m.at) + (late ? -5 : 5), y: 12, class: late ? "note end" : "note" }, m.label));
  }
  return svg;
}

function clipped(name, room) {
  const most = Math.floor(room / 6.6);
  return name.length > most ? `${name.slice(0, Math.max(1, most - 1))}…` : name;
}
