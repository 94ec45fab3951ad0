// Server-sent events over fetch, since EventSource can't show a token.

import { call, Refused } from "./backend.js";

const SILENCE = 15_000; // ms: a server that is there sends at least a comment every 5 s

/**
 * Reads the stream at path until the signal aborts, and comes back where it breaks. on(event,
 * data) gets each event; state(word, why) hears "connected" and "lost", and why it is. A refusal
 * ends it, unless it is for now only (503): the promise fails with it. A stream of which nothing
 * comes for so many ms of silence has broken.
 */
export async function follow(path, signal, on, state, silence = SILENCE) {
  for (let failures = 0; !signal.aborted;) {
    let why = "connection lost";
    try {
      const answer = await call(path, { signal, headers: { Accept: "text/event-stream" } });
      state("connected");
      await read(answer.body.pipeThrough(new TextDecoderStream()).getReader(), (event, data) => { failures = 0; on(event, data); }, silence);
    } catch (e) {
      if (signal.aborted) return;
      if (e instanceof Refused && e.status !== 503) throw e;
      if (e instanceof Refused) why = e.message;
    }
    if (signal.aborted) return;
    state("lost", why);
    failures++;
    await pause(Math.min(5000, 500 * 2 ** failures) * (0.5 + Math.random() / 2), signal);
  }
}

async function read(reader, on, silence) {
  try {
    await readAll(reader, on, silence);
  } finally {
    reader.cancel().catch(() => {}); // however it ended: the server must not keep it open
  }
}

// The next part of the stream; it fails where none comes in time.
async function part(reader, silence) {
  let timer = 0;
  const silent = new Promise((_, reject) => { timer = setTimeout(() => reject(new Error("nothing comes any more")), silence); });
  try {
    return await Promise.race([reader.read(), silent]);
  } finally {
    clearTimeout(timer);
  }
}

async function readAll(reader, on, silence) {
  let rest = "";
  for (;;) {
    const { value, done } = await part(reader, silence);
    if (done) return;
    rest += value;
    const events = rest.split("\n\n");
    rest = events.pop();
    for (const text of events) {
      let name = "message", data = "";
      for (const line of text.split("\n")) {
        if (line.startsWith("event:")) name = line.slice(6).trim();
        else if (line.startsWith("data:")) data += line.slice(5).trimStart();
      }
      if (data) on(name, JSON.parse(data));
    }
  }
}

const pause = (ms, signal) => new Promise((resolve) => {
  const timer = setTimeout(resolve, ms);
  signal.addEventListener("abort", () => { clearTimeout(timer); resolve(); }, { once: true });
});
