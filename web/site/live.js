// The live system at a glance: a model's numbers, its endpoints, the last minutes, and the
// decisions as they are made. Everything comes over one stream; it changes nothing, but for
// what an operator does with the admin token.

import { h, settled } from "./dom.js";
import { post, token } from "./backend.js";
import { chart } from "./chart.js";
import { decisions } from "./decision.js";
import { decimal, percent, seconds, short } from "./number.js";
import { follow } from "./stream.js";

const POINTS = 300; // of the charts, one a second

/** The dashboard as a view, and what fills it. It ends with the signal. */
export function live(signal) {
  const status = h("p", { class: "status", role: "status" }, "connecting …");
  const select = h("select", { "aria-label": "model", hidden: true, onchange: () => { model = select.value; shown = null; draw(); } });
  const body = h("div", { class: "live-body" });
  const stream = decisions();
  const acts = actions(() => { if (state) draw(); });
  const view = h("article", { class: "live" }, h("div", { class: "live-head" }, h("h1", null, "Live"), select, status, acts.node), body);
  let state = null, model = "", shown = null, history = new Map(), connected = false;

  // The same words are not said again: they would be read out each second.
  const say = (words) => { if (status.textContent !== words) status.textContent = words; };

  function draw() {
    const m = state.models.find((x) => x.model === model) ?? state.models[0];
    if (!m) { shown = null; body.replaceChildren(h("p", null, "No model is configured.")); return; }
    model = m.model;
    select.hidden = state.models.length < 2;
    const names = state.models.map((x) => x.model);
    if (names.join("\n") !== [...select.options].map((o) => o.value).join("\n")) {
      select.replaceChildren(...names.map((n) => h("option", { value: n, selected: n === model }, n)));
    }
    if (shown?.model !== model || shown.pools !== m.pools.map((p) => p.pool).join("\n")) {
      shown = modelView(m, acts, stream);
      stream.only(model);
      body.replaceChildren(shown.node);
    }
    acts.possible(state.may_change);
    shown.update(m, state, history.get(model));
    say(connected ? `figures of the last ${decimal(m.window.seconds, 0)} s${state.dropped_events ? `; ${state.dropped_events} events were dropped, this browser is too slow for them` : ""}` : "connection lost, trying again …");
    status.dataset.state = connected ? "connected" : "lost";
    shown.node.toggleAttribute("data-stale", !connected);
  }

  let first;
  const filled = new Promise((resolve) => { first = resolve; });
  const start = () => follow("v1/live", signal, (event, data) => {
    switch (event) {
      case "history":
        history = new Map(data.models.map((m) => [m.model, past(m, data)]));
        break;
      case "state":
        state = data;
        for (const m of data.models) remember(history, m, data.at_unix_seconds);
        draw();
        first();
        break;
      case "decision": stream.add(data); break;
      case "outcome": stream.ended(data); break;
    }
  }, (word, why) => {
    connected = word === "connected";
    if (state) draw();
    else say(word === "connected" ? "connected" : `${why}, trying again …`);
  }).catch((e) => {
    if (signal.aborted) return;
    shown = null; // a state that comes later is drawn in the place of this
    body.replaceChildren(h("p", { class: "problem", role: "alert" }, e.message), acts.login(start));
    say("");
    first();
  });
  start();
  return [view, () => filled];
}

// The last minutes, by model: lists that grow at the end and lose their beginning.

function past(m, data) {
  const times = m.calls_per_second.map((_, i) => i - m.calls_per_second.length + 1);
  const at = times.map((t) => data.at_unix_seconds + t * data.step_seconds);
  return {
    at, rate: [...m.calls_per_second], goodput: [...m.goodput_share], ttft: [...m.ttft_p95_seconds],
    pools: new Map(m.pools.map((p) => [p.pool, {
      queue: [...p.queue_calls], endpoints: new Map(p.endpoints.map((e) => [e.endpoint, { flight: [...e.in_flight], waiting: [...e.waiting] }])),
    }])),
  };
}

function remember(history, m, now) {
  let p = history.get(m.model);
  if (!p) history.set(m.model, p = { at: [], rate: [], goodput: [], ttft: [], pools: new Map() });
  if (p.at.length && now - p.at.at(-1) < 0.5) return; // the history had it already
  p.at.push(now);
  p.rate.push(m.recent.calls_per_second);
  p.goodput.push(m.recent.goodput_share);
  p.ttft.push(m.recent.ttft_p95_seconds);
  for (const pool of m.pools) {
    let q = p.pools.get(pool.pool);
    if (!q) p.pools.set(pool.pool, q = { queue: [], endpoints: new Map() });
    grow(q.queue, pool.queue?.calls ?? null, p.at.length);
    for (const e of pool.endpoints) {
      let x = q.endpoints.get(e.endpoint);
      if (!x) q.endpoints.set(e.endpoint, x = { flight: [], waiting: [] });
      grow(x.flight, e.in_flight, p.at.length);
      grow(x.waiting, e.waiting, p.at.length);
    }
    for (const name of q.endpoints.keys()) if (!pool.endpoints.some((e) => e.endpoint === name)) q.endpoints.delete(name);
  }
  if (p.at.length > POINTS) for (const list of [p.at, p.rate, p.goodput, p.ttft]) list.shift();
}

function grow(list, value, length) {
  while (list.length < length - 1) list.unshift(null); // it came later
  list.push(value);
  while (list.length > Math.min(length, POINTS)) list.shift();
}

// One model.

function modelView(m, acts, stream) {
  const tiles = tileRow();
  const pools = m.pools.map((p) => poolView(m.model, p, acts));
  const ttft = chart(empty("ttft", "TTFT P95, of the last 10 s", { label: "TTFT", unit: "s" }));
  const rate = chart(empty("rate", "calls", { label: "calls", unit: "1/s" }));
  const goodput = chart(empty("goodput", "goodput against the SLO", { label: "within the SLO", unit: "%", most: 100 }));
  const predicted = chart({ ...empty("predicted", "predicted against actual TTFT", { label: "actual", unit: "s", log: true }), kind: "dots", x: { label: "predicted", unit: "s", log: true } });
  const node = h("div", { class: "model" }, tiles.node, pools.map((p) => p.node),
    h("section", { class: "plots", "aria-label": "the last five minutes" }, ttft, rate, goodput, predicted), stream.node);
  return {
    model: m.model, pools: m.pools.map((p) => p.pool).join("\n"), node,
    update(now, state, past) {
      tiles.update(now);
      const x = past.at.map((t) => t - past.at.at(-1));
      const span = Math.min(-60, 60 * Math.floor((x[0] + 1) / 60)); // in steps, so that the axis stands still
      ttft.update({ ...empty("ttft", "TTFT P95, of the last 10 s", { label: "TTFT", unit: "s" }), marks: markOf(now.slo?.ttft_seconds), series: [since(span, { name: "TTFT P95", x, y: past.ttft })] });
      rate.update({ ...empty("rate", "calls, of the last 10 s", { label: "calls", unit: "1/s" }), series: [since(span, { name: "calls", x, y: past.rate })] });
      goodput.hidden = !now.slo;
      if (now.slo) goodput.update({ ...empty("goodput", "goodput against the SLO", { label: "within the SLO", unit: "%", most: 100 }), says: sloText(now.slo), series: [since(span, { name: "within the SLO", x, y: past.goodput.map((v) => (v === null ? null : 100 * v)) })] });
      predicted.hidden = now.prediction.n === 0;
      if (!predicted.hidden) predicted.update(predictionPlot(now.prediction));
      for (const [i, p] of pools.entries()) p.update(now.pools[i], state, past.pools.get(now.pools[i].pool), x, span);
    },
  };
}

const empty = (name, title, y) => ({ name, title, kind: "lines", x: { label: "time", unit: "s" }, y, series: [{ name: "", x: [], y: [] }], says: "" });
const since = (span, series) => ({ ...series, x: [span, ...series.x], y: [null, ...series.y] });
const markOf = (at) => (at ? [{ axis: "y", at, label: "SLO" }] : []);
const sloText = (slo) => ["TTFT", "TPOT"].map((k) => [k, slo[`${k.toLowerCase()}_seconds`]]).filter(([, v]) => v).map(([k, v]) => `${k} within ${seconds(v)}`).join(", ");

function predictionPlot(p) {
  return {
    name: "predicted", title: "predicted against actual TTFT", kind: "dots", x: { label: "predicted", unit: "s", log: true }, y: { label: "actual", unit: "s", log: true },
    series: [{ name: "calls", x: p.predicted_seconds, y: p.actual_seconds }], marks: [{ axis: "diagonal", label: "as predicted" }],
    says: `Off by ${percent(p.median_relative_error, 0)} at the median, ${percent(p.p95_relative_error, 0)} at P95, over ${decimal(p.n, 0)} calls of the last minute.`,
  };
}

function tileRow() {
  const all = [
    ["in flight", (m) => decimal(m.in_flight, 0)],
    ["calls", (m) => `${short(m.window.calls_per_second)} /s`],
    ["within SLO", (m) => (m.window.goodput ? percent(m.window.goodput.share) : "no SLO")],
    ["TTFT P50", (m) => seconds(m.window.ttft_seconds.p50)],
    ["TTFT P95", (m) => seconds(m.window.ttft_seconds.p95)],
    ["TPOT P50", (m) => seconds(m.window.tpot_seconds.p50)],
    ["TPOT P95", (m) => seconds(m.window.tpot_seconds.p95)],
    ["output", (m) => `${short(m.window.output_tokens_per_second)} tok/s`],
    ["prompt cached", (m) => percent(m.window.cached_prompt_share, 0)],
    ["retries", (m) => decimal(m.window.retries, 0)],
    ["refused", (m) => decimal(m.window.refusals, 0), (m) => m.window.refusals > 0],
    ["failed", (m) => decimal(m.window.failures, 0), (m) => m.window.failures > 0],
  ].map(([name, text, bad]) => ({ text, bad, dd: h("dd", { class: "number" }), name }));
  return {
    node: h("dl", { class: "tiles" }, all.map((t) => h("div", { "data-tile": t.name }, h("dt", null, t.name), t.dd))),
    update(m) {
      for (const t of all) {
        t.dd.textContent = t.text(m);
        t.dd.classList.toggle("bad", Boolean(t.bad?.(m)));
      }
    },
  };
}

// One pool: its endpoints, its queue, and what another policy would do.

const COLUMNS = ["endpoint", "state", "in flight", "running", "waiting", "KV use", "hit rate", "TTFT P50", "TTFT P95", "TPOT P50", "signal", "share", "calls"];

function poolView(model, p, acts) {
  const rows = new Map();
  const tbody = h("tbody");
  const title = h("h2", null, p.pool), under = h("p", { class: "soft" });
  const queue = chart(empty("queue", "calls in flight by endpoint", { label: "in flight" }));
  const shadow = shadowView(model, p.pool, acts);
  const node = h("section", { class: "pool", "data-pool": p.pool, "aria-label": `pool ${p.pool}` },
    h("div", { class: "pool-head" }, title, under),
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `endpoints of ${p.pool}` },
      h("table", { class: "endpoints" }, h("thead", null, h("tr", null, COLUMNS.map((c, i) => h("th", { scope: "col", class: i > 1 ? "number" : null }, c)), h("th", { scope: "col" }, h("span", { class: "visually-hidden" }, "actions")))), tbody)),
    h("div", { class: "pool-under" }, queue, shadow.node));
  return {
    node,
    update(now, state, past, x, span) {
      under.textContent = [`policy ${now.policy}`, now.queue ? `queue ${now.queue.calls} calls, oldest ${seconds(now.queue.oldest_seconds)}, predicted ${seconds(now.queue.predicted_wait_seconds)}` : null,
        now.single_flight !== undefined ? `${now.single_flight} wait for a sibling` : null].filter(Boolean).join(" · ");
      const most = Math.max(4, ...now.endpoints.map((e) => e.in_flight));
      for (const e of now.endpoints) {
        if (!rows.has(e.endpoint)) {
          rows.set(e.endpoint, endpointRow(model, p.pool, e.endpoint, acts));
          tbody.append(rows.get(e.endpoint).node);
        }
        rows.get(e.endpoint).update(e, most);
      }
      for (const [name, row] of rows) {
        if (now.endpoints.some((e) => e.endpoint === name)) continue;
        row.node.remove();
        rows.delete(name);
      }
      if (past) queue.update(flightPlot(past, x, span));
      shadow.update(now, state);
    },
  };
}

// A minute and a half and more is drawn in means of 5 s: each second of it would be a hatch.
function smoothed(series) {
  const out = { name: series.name, x: [], y: [] };
  for (let end = series.x.length; end > 0; end -= 5) {
    const part = series.y.slice(Math.max(0, end - 5), end).filter((v) => v !== null);
    out.x.unshift(series.x[end - 1]);
    out.y.unshift(part.length ? part.reduce((a, b) => a + b, 0) / part.length : null);
  }
  return out;
}

function flightPlot(past, x, span) {
  const plot = empty("queue", "calls in flight by endpoint", { label: "in flight" });
  const lists = [...past.endpoints].map(([name, e]) => ({ name, x: x.slice(-e.flight.length), y: e.flight }));
  if (lists.length > 6) {
    const at = (i) => lists.map((l) => l.y.at(i - x.length)).filter((v) => v !== null && v !== undefined).sort((a, b) => a - b);
    const of = (name, pick) => ({ name, x, y: x.map((_, i) => { const v = at(i); return v.length ? pick(v) : null; }) });
    plot.series = [of("the most", (v) => v.at(-1)), of("the median", (v) => v[Math.floor((v.length - 1) / 2)]), of("the fewest", (v) => v[0])];
    plot.title = `calls in flight, over ${lists.length} endpoints`;
  } else {
    plot.series = lists;
  }
  if (past.queue.some((v) => v !== null)) plot.series.push({ name: "held in the queue", x: x.slice(-past.queue.length), y: past.queue });
  plot.kind = x.length > 90 ? "lines" : "steps";
  if (x.length > 90) plot.series = plot.series.map(smoothed);
  if (plot.series.length === 0) plot.series.push({ name: "", x: [], y: [] }); // no endpoint has been found
  plot.series[0] = since(span, plot.series[0]);
  return plot;
}

function endpointRow(model, pool, name, acts) {
  const cells = Object.fromEntries(["state", "in-flight", "running", "waiting", "kv-use", "hit-rate", "ttft-p50", "ttft-p95", "tpot", "signal", "share", "calls"]
    .map((f) => [f, h("td", { "data-field": f, class: f === "state" ? null : "number" })]));
  const op = operations(model, pool, name, acts);
  const node = h("tr", { "data-endpoint": name }, h("th", { scope: "row" }, name), Object.values(cells), h("td", null, op.node));
  const say = (field, text) => { if (cells[field].textContent !== text) cells[field].textContent = text; };
  const flight = meter(cells["in-flight"]), kv = meter(cells["kv-use"]);
  return {
    node,
    update(e, most) {
      const [word, level] = stateOf(e);
      say("state", word);
      cells.state.dataset.level = level;
      cells.state.title = e.cause ? `${e.cause}, ${e.consecutive_failures} failures in a row` : e.url;
      flight(e.in_flight / most, decimal(e.in_flight, 0));
      say("running", e.running === null ? "–" : decimal(e.running, 0));
      say("waiting", e.waiting === null ? "–" : decimal(e.waiting, 0));
      kv(e.kv_usage, percent(e.kv_usage, 0), e.kv_usage > 0.9);
      say("hit-rate", percent(e.prefix_hit_rate ?? e.cached_prompt_share, 0));
      cells["hit-rate"].title = [e.prefix_trust ? `beliefs about its cache: ${e.prefix_trust}` : "", e.prefix_hit_rate === null ? "of this gateway’s prompts, as the answers report it" : "as the engine reports it"].filter(Boolean).join("; ");
      say("ttft-p50", seconds(e.window.ttft_seconds.p50));
      say("ttft-p95", seconds(e.window.ttft_seconds.p95));
      say("tpot", seconds(e.window.tpot_seconds.p50));
      say("signal", e.signal_age_seconds === null ? "none" : `${seconds(e.signal_age_seconds)} old`);
      say("share", e.share < 1 ? `${percent(e.share, 0)}, new` : e.weight === 1 ? "whole" : `weight ${short(e.weight)}`);
      say("calls", `${short(e.window.calls_per_second)} /s`);
      op.update(e);
    },
  };
}

function meter(cell) {
  const bar = h("span", { class: "meter", "aria-hidden": "true" }), inner = h("span"), text = h("span", { class: "meter-text" });
  bar.append(inner);
  cell.append(bar, text);
  return (share, words, bad) => {
    inner.style.width = `${Math.max(0, Math.min(100, 100 * (share ?? 0)))}%`;
    bar.classList.toggle("bad", Boolean(bad));
    text.textContent = words;
  };
}

function stateOf(e) {
  if (e.leaving) return ["leaving", "warn"];
  if (e.state !== "in rotation" && e.state !== "in_rotation") return [e.cause ? `${e.state}: ${e.cause}` : e.state, "bad"];
  if (e.draining) return [e.in_flight > 0 ? "draining" : "drained", "warn"];
  if (!e.healthy) return ["unhealthy", "bad"];
  if (e.busy_seconds > 0) return [`busy, ${seconds(e.busy_seconds)} more`, "warn"];
  return ["in rotation", "good"];
}

// What an operator may do: each a POST that shows the token.

function actions(changed) {
  const field = h("input", { type: "password", name: "token", id: "admin-token", autocomplete: "off", placeholder: "admin token", value: token.value, oninput: () => {
    token.value = field.value;
    right = false;
    tell();
    changed();
    check();
  } });
  const note = h("p", { class: "note", role: "status" });
  const label = h("label", { for: "admin-token" }, "read-only");
  const node = h("form", { class: "token", onsubmit: (e) => e.preventDefault() }, label, field, note);
  let configured = true; // until the stream says otherwise: it may ask for the token itself
  let right = false; // the token has been accepted
  const check = settled(async () => {
    const asked = token.value;
    let words = "";
    try {
      if (asked) await post("v1/token", "{}");
    } catch (e) {
      if (e.status === 401) words = "that is not the admin token";
      else if (!e.status || e.status === 403) words = e.message;
    }
    if (asked !== token.value) return; // it was changed meanwhile
    right = asked !== "" && words === "";
    note.textContent = words;
    tell();
    changed();
  }, 300);
  const tell = () => {
    label.textContent = !configured ? "read-only: no admin_token is configured" : right ? "may change" : "read-only without";
    field.hidden = !configured;
  };
  tell();
  if (token.value) check();
  return {
    node,
    possible(now) { if (configured !== now) { configured = now; tell(); } },
    may: () => configured && right,
    login: (start) => h("button", { type: "button", onclick: start }, "show with the token given above"),
    async post(path, body, words) {
      try {
        await post(path, JSON.stringify(body));
        note.textContent = `${words}: done`;
      } catch (e) {
        note.textContent = `${words}: ${e.message}`;
      }
      changed();
    },
  };
}

function operations(model, pool, endpoint, acts) {
  const name = { model, pool, endpoint };
  const drain = h("button", { type: "button", "data-do": "drain", onclick: () => acts.post("v1/endpoints/drain", name, `drain ${endpoint}`) }, "drain");
  const undrain = h("button", { type: "button", "data-do": "undrain", hidden: true, onclick: () => acts.post("v1/endpoints/undrain", name, `undrain ${endpoint}`) }, "undrain");
  const weight = h("input", { type: "number", min: 0.01, step: "any", "aria-label": `weight of ${endpoint}` });
  const set = h("button", { type: "button", "data-do": "weight", onclick: () => acts.post("v1/endpoints/weight", { ...name, weight: weight.valueAsNumber }, `weight ${weight.value} of ${endpoint}`) }, "set weight");
  const node = h("div", { class: "operations", hidden: true }, drain, undrain, weight, set);
  let known = null;
  return {
    node,
    update(e) {
      node.hidden = !acts.may();
      drain.hidden = e.draining;
      undrain.hidden = !e.draining;
      if (e.weight !== known && document.activeElement !== weight) weight.value = known = e.weight; // what is being typed stays
    },
  };
}

function shadowView(model, pool, acts) {
  const select = h("select", { name: "shadow", id: `shadow-${pool}`, disabled: true, onchange: () => acts.post("v1/shadow", { model, pool, policy: select.value }, select.value ? `what if ${select.value}` : "what-if off") });
  const says = h("p"), reasons = h("tbody");
  const table = h("table", { hidden: true }, h("thead", null, h("tr", null, ["its reason", "picks", "agreed"].map((c, i) => h("th", { scope: "col", class: i ? "number" : null }, c)))), reasons);
  return {
    node: h("section", { class: "shadow", "aria-label": "what if" }, h("h3", null, h("label", { for: `shadow-${pool}` }, "What if another policy chose?")), select, says, table),
    update(p, state) {
      select.disabled = !acts.may();
      const names = ["", ...state.shadow_policies];
      if (select.options.length !== names.length) select.replaceChildren(...names.map((n) => h("option", { value: n }, n || "off")));
      const s = p.shadow;
      if (document.activeElement !== select) select.value = s?.policy ?? "";
      table.hidden = !s;
      says.textContent = s ? shadowText(s) : "Another policy can rank the same calls beside the one that decides, without any effect: how often, and why, it would choose otherwise is shown here, and with each decision.";
      reasons.replaceChildren(...(s?.reasons ?? []).map((r) => h("tr", null, h("th", { scope: "row" }, r.reason), h("td", { class: "number" }, decimal(r.picks, 0)), h("td", { class: "number" }, percent(r.picks ? r.agreed / r.picks : null, 0)))));
    },
  };
}

function shadowText(s) {
  const apart = s.picks - s.agreed;
  if (s.picks === 0) return "No call has come since it was switched on.";
  if (apart === 0) return `All ${decimal(s.picks, 0)} picks are the same.`;
  const tokens = s.overlap_tokens_gained / apart, calls = s.outstanding_added / apart;
  const more = (v, unit) => `${short(Math.abs(v))} ${unit} ${v < 0 ? "fewer" : "more"}`;
  return `${decimal(s.picks, 0)} picks, ${percent(s.agreed / s.picks, 0)} the same. Where it would choose otherwise, its endpoint holds ${more(tokens, "tokens")} of the prompt and has ${more(calls, "calls")} before it, in the mean.`;
}
