// Server-sent events over fetch, since EventSource can't show a token.

import { call, Refused } from "./backend.js";

/**
 * Reads the stream at path until the signal aborts, and comes back where it breaks. on(event,
 * data) gets each event; state(word, why) hears "connected" and "lost", and why it is. A refusal
 * ends it, unless it is for now only (503): the promise fails with it.
 */
export async function follow(path, signal, on, state) {
  for (let failures = 0; !signal.aborted;) {
    let why = "connection lost";
    try {
      const answer = await call(path, { signal, headers: { Accept: "text/event-stream" } });
      state("connected");
      await read(answer.body.pipeThrough(new TextDecoderStream()).getReader(), (event, data) => { failures = 0; on(event, data); });
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

async function read(reader, on) {
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
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
