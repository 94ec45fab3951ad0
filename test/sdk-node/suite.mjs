// Calls the gateway at BASE as applications do: node suite.mjs FOLDER new|old. It prints a
// line a case; see program.Suite.

import { createRequire } from "node:module";
import { deepStrictEqual, ok } from "node:assert";

const [folder, age] = process.argv.slice(2);
const require = createRequire(folder + "/");
const exported = (module) => module.default ?? module;
const OpenAI = exported(require(`openai-${age}`));
const Anthropic = exported(require(`anthropic-${age}`));

const { BASE, SCRIPTED, HEARTBEAT } = process.env;
const settings = { apiKey: "sk-client", maxRetries: 0, timeout: 60_000 };
const client = new OpenAI({ ...settings, baseURL: BASE + "/v1" });
const direct = new OpenAI({ ...settings, baseURL: SCRIPTED + "/v1" });
const claude = new Anthropic({ ...settings, baseURL: BASE });

const messages = [{ role: "user", content: "Who made the mead of poetry?" }];
const schema = { type: "object", properties: { text: { type: "string" } }, required: ["text"] };
const tool = { type: "function", function: { name: "weather", description: "The weather", parameters: schema } };

class Skip extends Error {}

const cases = [];
const test = (name, run) => cases.push({ name, run });

async function raises(kind, run) {
  try {
    await run();
  } catch (error) {
    if (error instanceof kind) return error;
    throw error;
  }
  throw new Error(`no ${kind.name}`);
}

/** Calls a route that an older gateway, or an older engine, has not got. */
async function known(run) {
  try {
    return await run();
  } catch (error) {
    if (error.status === 404 && /unknown_route|Not Found/.test(JSON.stringify(error.error) + error.message))
      throw new Skip("there is no such route");
    throw error;
  }
}

async function all(stream) {
  const out = [];
  for await (const event of stream) out.push(event);
  return out;
}

const textOf = (chunks) => chunks.map((c) => c.choices[0]?.delta?.content ?? "").join("");
const textOfMessages = (events) =>
  events.filter((e) => e.type === "content_block_delta").map((e) => e.delta.text).join("");
const textOfResponse = (events) =>
  events.filter((e) => e.type === "response.output_text.delta").map((e) => e.delta).join("");

function responses() {
  if (!client.responses) throw new Skip("this SDK has no responses");
  return client.responses;
}

test("chat", async () => {
  const answer = await client.chat.completions.create({ model: "tiny", messages, max_tokens: 20 });
  ok(answer.choices[0].message.content);
  ok(answer.usage.completion_tokens > 0 && answer.usage.completion_tokens <= 20);
});

test("chat streamed", async () => {
  const chunks = await all(await client.chat.completions.create({
    model: "default", messages, max_tokens: 20, stream: true, stream_options: { include_usage: true } }));
  ok(textOf(chunks));
  ok(chunks.length > 3, `${chunks.length} chunks: the stream was gathered`);
  ok(chunks.at(-1).usage.completion_tokens <= 20);
});

test("chat streamed is what is not streamed", async () => {
  const fields = { model: "tiny", messages, max_tokens: 20, seed: 7, temperature: 0 };
  const whole = await client.chat.completions.create(fields);
  const chunks = await all(await client.chat.completions.create({ ...fields, stream: true }));
  deepStrictEqual(textOf(chunks), whole.choices[0].message.content);
});

test("chats at once", async () => {
  const answers = await Promise.all([...Array(16).keys()].map(async (n) => textOf(await all(
    await client.chat.completions.create({ model: "tiny", max_tokens: 20, stream: true, messages: [{ role: "user", content: `mead ${n}` }] })))));
  ok(answers.every(Boolean));
});

test("chat with a tool", async () => {
  const answer = await client.chat.completions.create({ model: "tiny", messages, max_tokens: 30, tools: [tool], tool_choice: "required" });
  const [call] = answer.choices[0].message.tool_calls;
  deepStrictEqual(call.function.name, "weather");
  ok(JSON.parse(call.function.arguments).text);
});

test("chat with a tool streamed", async () => {
  const chunks = await all(await client.chat.completions.create({ model: "tiny", messages, max_tokens: 30, tools: [tool], tool_choice: "required", stream: true }));
  const deltas = chunks.flatMap((c) => c.choices[0]?.delta?.tool_calls ?? []);
  deepStrictEqual(deltas.map((d) => d.function.name ?? "").join(""), "weather");
  ok(JSON.parse(deltas.map((d) => d.function.arguments ?? "").join("")).text);
});

test("chat left in the middle", async () => {
  const stream = await client.chat.completions.create({ model: "tiny", messages, max_tokens: 5000, stream: true, ignore_eos: true });
  for await (const chunk of stream) if (chunk) break;
  stream.controller.abort();
});

test("completion", async () => {
  const answer = await client.completions.create({ model: "tiny", prompt: "Once upon a time", max_tokens: 8 });
  ok(answer.choices[0].text);
});

test("completion streamed", async () => {
  const chunks = await all(await client.completions.create({ model: "tiny", prompt: "Once upon a time", max_tokens: 8, stream: true }));
  ok(chunks.map((c) => c.choices[0]?.text ?? "").join(""));
});

test("embeddings by default are what they are as floats", async () => {
  const input = ["mead", "honey"];
  const byDefault = await client.embeddings.create({ model: "tiny", input }); // a current SDK asks for base64
  const floats = await client.embeddings.create({ model: "tiny", input, encoding_format: "float" });
  byDefault.data.forEach(({ embedding }, i) => {
    const want = floats.data[i].embedding;
    deepStrictEqual(embedding.length, want.length);
    ok(want.length > 0 && embedding.every((x, j) => Math.abs(x - want[j]) < 1e-6), "they differ");
  });
});

test("models", async () => {
  const names = (await all(await client.models.list())).map((m) => m.id);
  for (const name of ["tiny", "default", "slow"]) ok(names.includes(name), names.join());
  deepStrictEqual((await client.models.retrieve("default")).id, "default");
});

test("response headers", async () => {
  const { response } = await client.chat.completions.create(
    { model: "tiny", messages, max_tokens: 3 }, { headers: { "x-request-id": "my-call.1" } }).withResponse();
  deepStrictEqual(response.headers.get("x-request-id"), "my-call.1");
  ok(response.headers.get("x-kvasir-endpoint"));
});

test("error of an unknown model", async () => {
  const error = await raises(OpenAI.NotFoundError, () => client.chat.completions.create({ model: "nobody", messages }));
  deepStrictEqual([error.code, error.param], ["model_not_found", "model"]);
});

test("error of a wrong type", async () => {
  const error = await raises(OpenAI.BadRequestError, () => client.chat.completions.create({ model: 7, messages }));
  deepStrictEqual([error.type, error.param], ["invalid_request_error", "model"]);
});

test("error of the engine", async () => {
  const long = [{ role: "user", content: "long ".repeat(200_000) }];
  const error = await raises(OpenAI.BadRequestError, () => client.chat.completions.create({ model: "tiny", messages: long, max_tokens: 1 }));
  ok(error.message.includes("maximum context length"), error.message);
});

test("error of an unknown route", async () => {
  const error = await raises(OpenAI.NotFoundError, () => client.post("/nonsense", { body: { model: "tiny" } }));
  deepStrictEqual(error.code, "unknown_route");
});

test("error of a limited endpoint", async () => {
  const error = await raises(OpenAI.RateLimitError, () => client.chat.completions.create({ model: "limited", messages }));
  const headers = error.headers instanceof Headers ? error.headers.get("retry-after") : error.headers["retry-after"];
  ok(headers, "no retry-after");
});

test("error of a busy endpoint", async () => {
  const error = await raises(OpenAI.InternalServerError, () => client.chat.completions.create({ model: "busy", messages }));
  deepStrictEqual(error.status, 503);
});

test("error in a stream", async () => {
  const seen = [];
  const error = await raises(OpenAI.APIError, async () => {
    for await (const chunk of await client.chat.completions.create({ model: "torn", messages, stream: true })) seen.push(chunk);
  });
  ok(!(error instanceof OpenAI.APIConnectionError), "the connection was cut instead");
  deepStrictEqual([textOf(seen), error.code], ["mead, ", "upstream_broke_off"]);
});

async function heartbeats(read) {
  if (HEARTBEAT !== "on") throw new Skip("this gateway sends no heartbeats");
  deepStrictEqual(await read(), "mead, more mead");
}

test("heartbeats in a chat", () => heartbeats(async () =>
  textOf(await all(await client.chat.completions.create({ model: "slow", messages, stream: true })))));

test("heartbeats in a response", () => heartbeats(async () =>
  textOfResponse(await all(await known(() => responses().create({ model: "slow", input: "mead?", stream: true }))))));

test("heartbeats in messages", () => heartbeats(async () =>
  textOfMessages(await all(await known(() => claude.messages.create({ model: "slow", max_tokens: 20, messages, stream: true }))))));

test("pauses of the endpoint itself", async () => {
  const chunks = await all(await direct.chat.completions.create({ model: "slow", messages, stream: true }));
  deepStrictEqual(textOf(chunks), "mead, more mead");
});

test("response", async () => {
  const answer = await known(() => responses().create({ model: "tiny", input: "Who made it?", max_output_tokens: 16 }));
  ok(answer.output_text && answer.usage.output_tokens <= 16);
});

test("response streamed", async () => {
  const events = await all(await known(() => responses().create({ model: "default", input: "Who?", max_output_tokens: 16, stream: true })));
  ok(textOfResponse(events));
  deepStrictEqual(events[0].type, "response.created");
  ok(["response.completed", "response.incomplete"].includes(events.at(-1).type), events.at(-1).type);
});

test("response stream torn", async () => {
  const seen = [];
  try {
    for await (const event of await known(() => responses().create({ model: "torn", input: "Who?", stream: true }))) seen.push(event);
  } catch (error) {
    if (!(error instanceof OpenAI.APIError) || error instanceof OpenAI.APIConnectionError) throw error;
    return;
  }
  ok(["error", "response.failed"].includes(seen.at(-1).type), `ended with ${seen.at(-1).type}`);
});

test("messages", async () => {
  const answer = await known(() => claude.messages.create({ model: "tiny", max_tokens: 16, messages }));
  ok(answer.content[0].text && answer.usage.output_tokens <= 16);
});

test("messages streamed", async () => {
  await known(() => claude.messages.create({ model: "tiny", max_tokens: 1, messages }));
  const stream = claude.messages.stream({ model: "default", max_tokens: 16, messages });
  let text = "";
  stream.on("text", (piece) => (text += piece));
  const final = await stream.finalMessage();
  ok(text);
  deepStrictEqual(final.content[0].text, text);
  ok(final.usage.output_tokens > 0 && final.usage.output_tokens <= 16);
});

test("messages with a tool", async () => {
  const fields = { model: "tiny", max_tokens: 30, messages, tool_choice: { type: "any" },
    tools: [{ name: "weather", description: "The weather", input_schema: schema }] };
  const answer = await known(() => claude.messages.create(fields));
  ok(answer.content.some((b) => b.type === "tool_use" && b.name === "weather" && b.input.text));
  const final = await claude.messages.stream(fields).finalMessage();
  ok(final.content.some((b) => b.type === "tool_use" && b.input.text));
});

test("messages counted", async () => {
  if (!claude.messages.countTokens) throw new Skip("this SDK counts no tokens");
  const counted = await known(() => claude.messages.countTokens({ model: "tiny", messages }));
  ok(counted.input_tokens > 0);
});

test("messages error of an unknown model", async () => {
  await known(() => claude.messages.create({ model: "tiny", max_tokens: 1, messages }));
  const error = await raises(Anthropic.NotFoundError, () => claude.messages.create({ model: "nobody", max_tokens: 1, messages }));
  deepStrictEqual([error.error.type, error.error.error.type], ["error", "not_found_error"]);
});

test("messages error of a limited endpoint", async () => {
  await known(() => claude.messages.create({ model: "tiny", max_tokens: 1, messages }));
  await raises(Anthropic.RateLimitError, () => claude.messages.create({ model: "limited", max_tokens: 1, messages }));
});

test("messages stream torn", async () => {
  await known(() => claude.messages.create({ model: "tiny", max_tokens: 1, messages }));
  const seen = [];
  const error = await raises(Anthropic.APIError, async () => {
    for await (const event of await claude.messages.create({ model: "torn", max_tokens: 20, messages, stream: true })) seen.push(event);
  });
  // The old SDK loses the words of an error event, but makes an APIError of nothing else.
  ok(age === "old" || error.message.includes("broke off"), error.message);
  deepStrictEqual(textOfMessages(seen), "mead, ");
});

for (const { name, run } of cases) {
  try {
    await run();
    console.log(`ok ${name}`);
  } catch (error) {
    if (error instanceof Skip) {
      console.log(`skip ${name}: ${error.message}`);
      continue;
    }
    console.error(error);
    console.log(`failed ${name}: ${error.constructor.name}: ${String(error.message).replaceAll(/\s+/g, " ")}`);
  }
}
