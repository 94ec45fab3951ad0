package page

// watchShifts keeps what moves on a page that nobody touched.
const watchShifts = `
window.kvasirShifts = { sum: 0, moved: [] };
new PerformanceObserver((list) => {
  for (const e of list.getEntries()) {
    if (e.hadRecentInput) continue;
    window.kvasirShifts.sum += e.value;
    for (const s of e.sources ?? []) window.kvasirShifts.moved.push((s.node?.tagName ?? "?") + "." + (s.node?.className ?? ""));
  }
}).observe({ type: "layout-shift", buffered: true });
`
