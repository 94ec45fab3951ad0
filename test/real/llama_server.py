"""llama.cpp's server in this process, by the flags that llama-server has for the same."""

import argparse
import threading

import xllamacpp

flags = argparse.ArgumentParser()
flags.add_argument("--model", required=True)
flags.add_argument("--alias", required=True)
flags.add_argument("--host", required=True)
flags.add_argument("--port", type=int, required=True)
flags.add_argument("--ctx-size", type=int, required=True)
flags.add_argument("--parallel", type=int, required=True)
flags.add_argument("--threads", type=int, required=True)
flags.add_argument("--threads-batch", type=int, required=True)
flags.add_argument("--poll", type=int, required=True)
flags.add_argument("--pooling", required=True)
flags.add_argument("--metrics", action="store_true")
flags.add_argument("--embeddings", action="store_true")
flags.add_argument("--context-shift", action="store_true")
given = flags.parse_args()

params = xllamacpp.CommonParams()
params.model.path = given.model
params.model_alias = {given.alias}
params.hostnames = [given.host]
params.port = given.port
params.n_ctx = given.ctx_size
params.n_parallel = given.parallel
params.cpuparams.n_threads = given.threads
params.cpuparams_batch.n_threads = given.threads_batch
params.cpuparams.poll = params.cpuparams_batch.poll = given.poll
params.pooling_type = xllamacpp.llama_pooling_type[f"LLAMA_POOLING_TYPE_{given.pooling.upper()}"]
params.endpoint_metrics = given.metrics
params.embedding = given.embeddings
params.ctx_shift = given.context_shift
params.fit_params = False
params.ui = False

server = xllamacpp.Server(params)
print("llama.cpp's server listens at", server.listening_address, flush=True)
threading.Event().wait()
