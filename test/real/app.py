"""An app behind a real uvicorn that speaks as vLLM's frontend does.

It answers with words that follow from the request, a stream event by event, and counts what
it did on /metrics under vLLM's names. A request may ask for things that no engine has:

    "tokens"     how many tokens the answer has (else "max_tokens", else 16)
    "pause"      seconds between two tokens

Every answer tells the SHA-256 of the body that was read, as "system_fingerprint".
"""

import argparse
import asyncio
import hashlib
import json

import uvicorn

MODEL = "tiny"


class Counts:
    running = finished = aborted = generated = 0


def metrics():
    labels = f'engine="0",model_name="{MODEL}"'
    return f"""# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{{labels}}} {float(Counts.running)}
# HELP vllm:num_requests_waiting Number of requests waiting to be processed.
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{{{labels}}} 0.0
# HELP vllm:kv_cache_usage_perc KV-cache usage. 1 means 100 percent usage.
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{{{labels}}} {min(1.0, Counts.running / 64)}
# HELP vllm:request_success_total Count of successfully processed requests.
# TYPE vllm:request_success_total counter
vllm:request_success_total{{{labels},finished_reason="length"}} {float(Counts.finished)}
vllm:request_success_total{{{labels},finished_reason="abort"}} {float(Counts.aborted)}
# HELP vllm:generation_tokens_total Number of generation tokens processed.
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{{{labels}}} {float(Counts.generated)}
""".encode()


async def read(receive):
    parts = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


async def answer(send, status, body, kind=b"application/json"):
    headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class Generation:
    """One answer, whose words are the body's hash over and over."""

    def __init__(self, route, body):
        asked = json.loads(body)
        self.chat = route == "/v1/chat/completions"
        self.hash = hashlib.sha256(body).hexdigest()
        self.stream = asked.get("stream", False)
        self.tokens = asked.get("tokens") or asked.get("max_tokens") or 16
        self.pause = asked.get("pause", 0)
        self.usage = asked.get("stream_options", {}).get("include_usage", False)
        self.model = asked["model"]

    def word(self, n):
        return f" {self.hash[n % 56:n % 56 + 8]}"

    def object(self, kind, choice=None, **more):
        return {"id": f"{'chat' if self.chat else ''}cmpl-{self.hash[:12]}", "object": kind, "created": 1796000000,
                "model": self.model, "choices": [] if choice is None else [{"index": 0, **choice}], **more}

    def totals(self):
        return {"prompt_tokens": 7, "total_tokens": 7 + self.tokens, "completion_tokens": self.tokens}

    def events(self):
        kind = "chat.completion.chunk" if self.chat else "text_completion"
        if self.chat:
            yield self.object(kind, {"delta": {"role": "assistant", "content": ""}, "finish_reason": None})
        for n in range(self.tokens):
            piece = {"delta": {"content": self.word(n)}} if self.chat else {"text": self.word(n)}
            yield self.object(kind, {**piece, "finish_reason": None})
        last = {"delta": {"content": ""}} if self.chat else {"text": ""}
        yield self.object(kind, {**last, "finish_reason": "length"}, system_fingerprint=self.hash)
        if self.usage:
            yield self.object(kind, usage=self.totals())

    def whole(self):
        text = "".join(self.word(n) for n in range(self.tokens))
        piece = {"message": {"role": "assistant", "content": text}} if self.chat else {"text": text}
        kind = "chat.completion" if self.chat else "text_completion"
        return self.object(kind, {**piece, "finish_reason": "length"}, usage=self.totals(), system_fingerprint=self.hash)

    async def run(self, send):
        if not self.stream:
            await asyncio.sleep(self.pause * self.tokens)
            Counts.generated += self.tokens
            await answer(send, 200, json.dumps(self.whole(), separators=(",", ":")).encode())
            return
        headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for event in self.events():
            line = f"data: {json.dumps(event, separators=(',', ':'))}\n\n"
            await send({"type": "http.response.body", "body": line.encode(), "more_body": True})
            Counts.generated += 1
            await asyncio.sleep(self.pause)
        await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})


async def generate(route, receive, send):
    body = await read(receive)
    if body is None:
        return
    work = asyncio.create_task(Generation(route, body).run(send))
    gone = asyncio.create_task(receive())  # what comes after the body is the client's leaving
    Counts.running += 1
    try:
        await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            work.result()
            Counts.finished += 1
        else:
            Counts.aborted += 1
    finally:
        Counts.running -= 1
        work.cancel()
        gone.cancel()


async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    route = scope["method"], scope["path"]
    if route == ("GET", "/health"):
        await answer(send, 200, b"")
    elif route == ("GET", "/metrics"):
        await answer(send, 200, metrics(), b"text/plain; version=1.0.0; charset=utf-8")
    elif route in (("POST", "/v1/chat/completions"), ("POST", "/v1/completions")):
        await generate(scope["path"], receive, send)
    elif route == ("POST", "/tokenize"):
        asked = json.loads(await read(receive))
        tokens = list(asked["prompt"].encode())
        reply = {"count": len(tokens), "max_model_len": 4096, "tokens": tokens, "token_strs": None}
        await answer(send, 200, json.dumps(reply, separators=(",", ":")).encode())
    else:
        await answer(send, 404, b'{"detail":"Not Found"}')


if __name__ == "__main__":
    flags = argparse.ArgumentParser()
    flags.add_argument("--port", type=int, required=True)
    flags.add_argument("--http", choices=["httptools", "h11"], required=True)
    flags.add_argument("--keep-alive", type=int, default=5)
    given = flags.parse_args()
    uvicorn.run(app, host="127.0.0.1", port=given.port, http=given.http, lifespan="off",
                timeout_keep_alive=given.keep_alive, log_level="warning", access_log=False)
