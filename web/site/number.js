// Numbers as people read them. The same rules as the terminal's: groups of thousands, the
// decimals that mean something, and a dash for what is not known.

/** A number with so many decimals: 12,345.6. */
export function decimal(x, digits) {
  if (x === null || x === undefined || Number.isNaN(x)) return "–";
  if (!Number.isFinite(x)) return x > 0 ? "∞" : "-∞";
  let [whole, fraction] = Math.abs(x).toFixed(digits).split(".");
  whole = whole.replace(/\B(?=(\d{3})+$)/g, ",");
  const text = fraction ? `${whole}.${fraction}` : whole;
  return x < 0 && /[1-9]/.test(text) ? `-${text}` : text;
}

/** A number to about three digits, for axes and tooltips: 0.123, 1.23, 12.3, 1,230, 1.2M. */
export function short(x) {
  if (x === null || x === undefined || Number.isNaN(x)) return "–";
  const a = Math.abs(x);
  if (a >= 1e9) return `${trim(x / 1e9, 1)}G`;
  if (a >= 1e6) return `${trim(x / 1e6, 1)}M`;
  if (a >= 1e4) return `${trim(x / 1e3, 1)}k`;
  if (a >= 100 || Number.isInteger(x)) return decimal(x, 0);
  if (a >= 10) return trim(x, 1);
  if (a >= 1) return trim(x, 2);
  return a === 0 ? "0" : String(Number(x.toPrecision(2)));
}

const trim = (x, digits) => String(Number(x.toFixed(digits)));

/** Seconds with a unit that suits: 850 µs, 12 ms, 3.4 s, 2 min. */
export function seconds(x) {
  if (x === null || x === undefined || Number.isNaN(x)) return "–";
  const a = Math.abs(x);
  if (a === 0) return "0 s";
  if (a < 1e-3) return `${trim(x * 1e6, 0)} µs`;
  if (a < 0.1) return `${trim(x * 1e3, a < 0.01 ? 1 : 0)} ms`;
  if (a < 1) return `${trim(x * 1e3, 0)} ms`;
  if (a < 120) return `${trim(x, a < 10 ? 2 : 1)} s`;
  return a < 7200 ? `${trim(x / 60, 1)} min` : `${trim(x / 3600, 1)} h`;
}

/** A share as per cent: 97.3 %. */
export const percent = (x, digits = 1) => (x === null || x === undefined ? "–" : `${decimal(100 * x, digits)} %`);

/** Round values that cut [low, high] into about n parts, and how far they are apart. */
export function ticks(low, high, n) {
  const raw = (high - low) / Math.max(1, n);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].find((m) => m * power >= raw * 0.999) * power;
  const out = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) out.push(Number((i * step).toPrecision(12)));
  return out;
}

/** Powers of ten within [low, high], with 2 and 5 between them where there is room; where that leaves fewer than two, as ticks has them. */
export function logTicks(low, high) {
  const decades = Math.log10(high / low);
  const out = [];
  for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); e++) {
    for (const m of decades > 4 ? [1] : decades > 2 ? [1, 3] : [1, 2, 5]) {
      const x = Number((m * 10 ** e).toPrecision(3));
      if (x >= low * 0.999 && x <= high * 1.001) out.push(x);
    }
  }
  return out.length > 1 ? out : ticks(low, high, 4);
}
