// Who runs the labs: the server that this page comes from, or, where there is none, the same
// code in this browser. Both give the same bytes.

const inBrowser = document.querySelector('meta[name="kvasir-labs"]')?.content === "wasm";

/** Whether there is a server behind the page, and so a live system to show. */
export const hasServer = !inBrowser;

/** Bearer token of the admin listener, where it asks for one; kept for this visit only. */
export const token = { value: "" };

/** Headers that show the token, if there is one. */
const authorized = (headers = {}) => (token.value ? { ...headers, Authorization: `Bearer ${token.value}` } : headers);

/** An answer that is not a success, with the server's own words. */
export class Refused extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

/** fetch, whose failures are errors that say what the server said. */
export async function call(path, options = {}) {
  const answer = await fetch(path, { ...options, headers: authorized(options.headers), credentials: "omit", redirect: "error" });
  if (answer.ok) return answer;
  const text = await answer.text();
  let words = text.trim() || answer.statusText;
  try {
    words = JSON.parse(text).error ?? words;
  } catch { /* it is not JSON: the text itself */ }
  throw new Refused(answer.status, words);
}

/** call, which posts a JSON text. */
export const post = (path, text, options = {}) => call(path, { ...options, method: "POST", headers: { "Content-Type": "application/json" }, body: text });

let worker = null, asked = 0;
const waiting = new Map();

function inWorker(kind, text) {
  if (!worker) {
    worker = new Worker("worker.js");
    worker.onmessage = ({ data }) => {
      const promise = waiting.get(data.id);
      waiting.delete(data.id);
      if (data.error !== undefined) promise?.reject(new Error(data.error));
      else promise?.resolve(data.text);
    };
    worker.onerror = (e) => {
      for (const p of waiting.values()) p.reject(new Error(e.message || "the labs’ code could not be loaded"));
      waiting.clear();
      worker = null;
    };
  }
  return new Promise((resolve, reject) => {
    waiting.set(++asked, { resolve, reject });
    worker.postMessage({ id: asked, kind, text });
  });
}

let labs = null;

/** The catalogue of labs. */
export function list() {
  labs ??= (inBrowser ? inWorker("list") : call("v1/labs").then((a) => a.text())).then((text) => JSON.parse(text).labs);
  labs.catch(() => { labs = null; }); // asked again the next time
  return labs;
}

/**
 * A run of a lab: question is lab.Asked; the text of its result. The signal, where there is one,
 * takes back a question that waits at the server.
 */
export function askText(question, signal) {
  const text = JSON.stringify(question);
  if (inBrowser) return inWorker("ask", text);
  return post("v1/labs", text, { signal }).then((a) => a.text());
}

/** The same, parsed. */
export const ask = (question, signal) => askText(question, signal).then(JSON.parse);
