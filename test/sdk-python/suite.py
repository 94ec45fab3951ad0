"""Calls the gateway at BASE as applications do. It prints a line a case; see program.Suite."""

import asyncio
import json
import os
import sys
import traceback

import anthropic
import openai

BASE, SCRIPTED = os.environ["BASE"], os.environ["SCRIPTED"]
HEARTBEAT = os.environ.get("HEARTBEAT") == "on"

client = openai.OpenAI(base_url=BASE + "/v1", api_key="sk-client", max_retries=0, timeout=60)
direct = openai.OpenAI(base_url=SCRIPTED + "/v1", api_key="sk-client", max_retries=0, timeout=60)
claude = anthropic.Anthropic(base_url=BASE, api_key="sk-client", max_retries=0, timeout=60)

QUESTION = [{"role": "user", "content": "Who made the mead of poetry?"}]
WEATHER = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
TOOL = {"type": "function", "function": {"name": "weather", "description": "The weather", "parameters": WEATHER}}

CASES = []


class Skip(Exception):
    """This gateway, engine or SDK hasn't got what the case is about."""


def case(run):
    CASES.append(run)
    return run


def check(holds, *seen):
    if not holds:
        raise AssertionError(" ".join(map(repr, seen)) or "does not hold")


def raises(kind, call):
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


def known(call, *parts, **fields):
    """Calls a route that an older gateway, or an older engine, has not got."""
    try:
        return call(*parts, **fields)
    except (openai.NotFoundError, anthropic.NotFoundError) as error:
        if "unknown_route" in json.dumps(error.body) or "Not Found" in str(error):
            raise Skip("there is no such route") from error
        raise


def has(parent, name):
    if not hasattr(parent, name):
        raise Skip(f"this SDK has no {name}")
    return getattr(parent, name)


def text_of(stream):
    return "".join(c.choices[0].delta.content or "" for c in stream if c.choices)


@case
def chat():
    answer = client.chat.completions.create(model="tiny", messages=QUESTION, max_tokens=20)
    check(answer.choices[0].message.content, answer)
    check(answer.choices[0].finish_reason in ("stop", "length"), answer)
    check(0 < answer.usage.completion_tokens <= 20, answer.usage)


@case
def chat_streamed():
    stream = client.chat.completions.create(
        model="default", messages=QUESTION, max_tokens=20, stream=True, stream_options={"include_usage": True})
    chunks = list(stream)
    check(text_of(chunks), chunks)
    check(chunks[-1].usage.completion_tokens <= 20 and not chunks[-1].choices, chunks[-1])
    check(len(chunks) > 3, "the stream was gathered", len(chunks))


@case
def chat_streamed_is_what_is_not_streamed():
    fields = {"model": "tiny", "messages": QUESTION, "max_tokens": 20, "seed": 7, "temperature": 0}
    whole = client.chat.completions.create(**fields).choices[0].message.content
    check(text_of(client.chat.completions.create(**fields, stream=True)) == whole, whole)


@case
def chat_asynchronous():
    async def run():
        async with openai.AsyncOpenAI(base_url=BASE + "/v1", api_key="sk-client", max_retries=0) as c:
            async def one(n):
                out = ""
                async for chunk in await c.chat.completions.create(
                        model="tiny", messages=[{"role": "user", "content": f"mead {n}"}], max_tokens=20, stream=True):
                    out += chunk.choices[0].delta.content or ""
                return out
            return await asyncio.gather(*(one(n) for n in range(16)))
    answers = asyncio.run(run())
    check(len(answers) == 16 and all(answers), answers)


@case
def chat_of_two_choices():
    stream = client.chat.completions.create(model="tiny", messages=QUESTION, max_tokens=10, n=2, stream=True)
    seen = {choice.index for chunk in stream for choice in chunk.choices}
    check(seen == {0, 1}, seen)


@case
def chat_with_a_tool():
    answer = client.chat.completions.create(
        model="tiny", messages=QUESTION, max_tokens=30, tools=[TOOL], tool_choice="required")
    calls = answer.choices[0].message.tool_calls
    check(calls and calls[0].function.name == "weather" and json.loads(calls[0].function.arguments)["text"], calls)


@case
def chat_with_a_tool_streamed():
    stream = client.chat.completions.create(
        model="tiny", messages=QUESTION, max_tokens=30, tools=[TOOL], tool_choice="required", stream=True)
    name = arguments = ""
    for chunk in stream:
        for call in chunk.choices[0].delta.tool_calls or []:
            name += call.function.name or ""
            arguments += call.function.arguments or ""
    check(name == "weather" and json.loads(arguments)["text"], name, arguments)


@case
def chat_left_in_the_middle():
    stream = client.chat.completions.create(
        model="tiny", messages=QUESTION, max_tokens=5000, stream=True, extra_body={"ignore_eos": True})
    next(iter(stream))
    has(stream, "close")()


@case
def completion():
    answer = client.completions.create(model="tiny", prompt="Once upon a time", max_tokens=8)
    check(answer.choices[0].text and answer.usage.completion_tokens <= 8, answer)


@case
def completion_streamed():
    chunks = list(client.completions.create(model="tiny", prompt="Once upon a time", max_tokens=8, stream=True))
    check("".join(c.choices[0].text for c in chunks if c.choices), chunks)


@case
def completion_of_token_ids():
    answer = client.completions.create(model="tiny", prompt=[5, 6, 7, 8], max_tokens=8)
    check(answer.usage.prompt_tokens == 4, answer.usage)


@case
def embeddings_by_default_are_what_they_are_as_floats():
    texts = ["mead", "honey"]
    default = client.embeddings.create(model="tiny", input=texts).data  # asks for base64
    floats = client.embeddings.create(model="tiny", input=texts, encoding_format="float").data
    check([d.index for d in default] == [0, 1], default)
    for a, b in zip(default, floats):
        check(len(a.embedding) == len(b.embedding) > 0, len(a.embedding), len(b.embedding))
        check(all(abs(x - y) < 1e-6 for x, y in zip(a.embedding, b.embedding)), "they differ")


@case
def models():
    names = [m.id for m in client.models.list()]
    check({"tiny", "default", "slow"} <= set(names), names)
    check(client.models.retrieve("default").id == "default")


@case
def response_headers():
    raw = client.chat.completions.with_raw_response.create(
        model="tiny", messages=QUESTION, max_tokens=3, extra_headers={"x-request-id": "my-call.1"})
    check(raw.headers["x-request-id"] == "my-call.1" and raw.headers.get("x-kvasir-endpoint"), dict(raw.headers))
    check(raw.parse().choices[0].message.content)


@case
def error_of_an_unknown_model():
    ask = lambda: client.chat.completions.create(model="nobody", messages=QUESTION)
    error = raises(openai.NotFoundError, ask)
    check(error.code == "model_not_found" and error.param == "model" and error.status_code == 404, error.body)
    check(error.request_id, "no request id")


@case
def error_of_a_wrong_type():
    ask = lambda: client.chat.completions.create(model="tiny", messages=QUESTION, extra_body={"stream": "yes"})
    error = raises(openai.BadRequestError, ask)
    check(error.type == "invalid_request_error" and error.param == "stream", error.body)


@case
def error_of_the_engine():
    ask = lambda: client.chat.completions.create(
        model="tiny", messages=[{"role": "user", "content": "long " * 200_000}], max_tokens=1)
    error = raises(openai.BadRequestError, ask)
    check("maximum context length" in error.message, error.message)


@case
def error_of_an_unknown_route():
    error = raises(openai.NotFoundError, lambda: client.post("/nonsense", cast_to=object, body={"model": "tiny"}))
    check(error.code == "unknown_route", error.body)


@case
def error_of_a_limited_endpoint():
    error = raises(openai.RateLimitError, lambda: client.chat.completions.create(model="limited", messages=QUESTION))
    check(error.response.headers.get("retry-after"), dict(error.response.headers))


@case
def error_of_a_busy_endpoint():
    error = raises(openai.InternalServerError, lambda: client.chat.completions.create(model="busy", messages=QUESTION))
    check(error.status_code == 503, error.status_code)


@case
def error_in_a_stream():
    seen = []

    def read():
        for chunk in client.chat.completions.create(model="torn", messages=QUESTION, stream=True):
            seen.append(chunk)

    error = raises(openai.APIError, read)
    check(not isinstance(error, openai.APIConnectionError), "the connection was cut instead", error)
    check(text_of(seen) == "mead, ", seen)
    check(error.code == "upstream_broke_off", error.code, error.message)


def heartbeats(read):
    if not HEARTBEAT:
        raise Skip("this gateway sends no heartbeats")
    check(read() == "mead, more mead")


@case
def heartbeats_in_a_chat():
    heartbeats(lambda: text_of(client.chat.completions.create(model="slow", messages=QUESTION, stream=True)))


@case
def heartbeats_in_a_chat_asynchronous():
    async def run():
        async with openai.AsyncOpenAI(base_url=BASE + "/v1", api_key="sk-client", max_retries=0) as c:
            stream = await c.chat.completions.create(model="slow", messages=QUESTION, stream=True)
            return text_of([chunk async for chunk in stream])

    heartbeats(lambda: asyncio.run(run()))


@case
def heartbeats_in_a_response():
    create = has(client, "responses").create
    heartbeats(lambda: "".join(e.delta for e in known(create, model="slow", input="mead?", stream=True)
                               if e.type == "response.output_text.delta"))


@case
def heartbeats_in_messages():
    def read():
        events = known(claude.messages.create, model="slow", max_tokens=20, messages=QUESTION, stream=True)
        return "".join(e.delta.text for e in events if e.type == "content_block_delta")

    heartbeats(read)


@case
def pauses_of_the_endpoint_itself():
    read = text_of(direct.chat.completions.create(model="slow", messages=QUESTION, stream=True))
    check(read == "mead, more mead", read)


@case
def pings_with_a_blank_line_of_their_own_break_this_sdk():
    """What the gateway's heartbeats must not be, where an endpoint's events have ids."""
    try:
        text_of(direct.chat.completions.create(model="pinged", messages=QUESTION, stream=True))
    except json.JSONDecodeError:
        return
    raise Skip("it reads them")


@case
def response():
    answer = known(has(client, "responses").create, model="tiny", input="Who made it?", max_output_tokens=16)
    check(answer.output_text and answer.usage.output_tokens <= 16, answer)


@case
def response_streamed():
    events = list(known(has(client, "responses").create, model="default", input="Who?", max_output_tokens=16, stream=True))
    check("".join(e.delta for e in events if e.type == "response.output_text.delta"), [e.type for e in events])
    check(events[0].type == "response.created", events[0])
    check(events[-1].type in ("response.completed", "response.incomplete"), events[-1])


@case
def response_error():
    create = has(client, "responses").create
    known(create, model="tiny", input="Who?", max_output_tokens=16)
    error = raises(openai.NotFoundError, lambda: create(model="nobody", input="Who?"))
    check(error.code == "model_not_found", error.body)


@case
def response_stream_torn():
    create = has(client, "responses").create
    seen = []

    def read():
        for event in known(create, model="torn", input="Who?", stream=True):
            seen.append(event)

    try:
        read()
    except openai.APIError as error:
        check(not isinstance(error, openai.APIConnectionError), "the connection was cut instead", error)
        return
    check(seen[-1].type in ("error", "response.failed"), "ended without a word", [e.type for e in seen])


@case
def messages():
    answer = known(claude.messages.create, model="tiny", max_tokens=16, messages=QUESTION)
    check(answer.content[0].text and answer.usage.output_tokens <= 16, answer)
    check(answer.stop_reason in ("end_turn", "max_tokens"), answer.stop_reason)


@case
def messages_streamed():
    known(claude.messages.create, model="tiny", max_tokens=1, messages=QUESTION)
    with claude.messages.stream(model="default", max_tokens=16, messages=QUESTION) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    check(text and final.content[0].text == text, text, final)
    check(0 < final.usage.output_tokens <= 16, final.usage)


@case
def messages_with_a_tool():
    tool = {"name": "weather", "description": "The weather", "input_schema": WEATHER}
    fields = {"model": "tiny", "max_tokens": 30, "messages": QUESTION, "tools": [tool], "tool_choice": {"type": "any"}}
    answer = known(claude.messages.create, **fields)
    used = [b for b in answer.content if b.type == "tool_use"]
    check(used and used[0].name == "weather" and used[0].input["text"], used)
    with claude.messages.stream(**fields) as stream:
        used = [b for b in stream.get_final_message().content if b.type == "tool_use"]
    check(used and used[0].input["text"], used)


@case
def messages_counted():
    counted = known(has(claude.messages, "count_tokens"), model="tiny", messages=QUESTION)
    check(counted.input_tokens > 0, counted)


@case
def messages_error_of_an_unknown_model():
    known(claude.messages.create, model="tiny", max_tokens=1, messages=QUESTION)
    error = raises(anthropic.NotFoundError,
                   lambda: claude.messages.create(model="nobody", max_tokens=1, messages=QUESTION))
    check(error.body["type"] == "error" and error.body["error"]["type"] == "not_found_error", error.body)


@case
def messages_error_of_a_limited_endpoint():
    known(claude.messages.create, model="tiny", max_tokens=1, messages=QUESTION)
    raises(anthropic.RateLimitError, lambda: claude.messages.create(model="limited", max_tokens=1, messages=QUESTION))


@case
def messages_stream_torn():
    known(claude.messages.create, model="tiny", max_tokens=1, messages=QUESTION)
    seen = []

    def read():
        for event in claude.messages.create(model="torn", max_tokens=20, messages=QUESTION, stream=True):
            seen.append(event)

    error = raises(anthropic.APIError, read)
    check(not isinstance(error, anthropic.APIConnectionError), "the connection was cut instead", error)
    check("".join(e.delta.text for e in seen if e.type == "content_block_delta") == "mead, ", seen)


def main():
    for run in CASES:
        name = run.__name__.replace("_", " ")
        try:
            run()
        except Skip as why:
            print(f"skip {name}: {why}")
        except Exception as error:  # whatever goes wrong is the case's verdict
            traceback.print_exc()
            sys.stderr.flush()
            print(f"failed {name}: {type(error).__name__}: {' '.join(str(error).split())}")
        else:
            print(f"ok {name}")


main()
