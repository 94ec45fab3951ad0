#!/usr/bin/env bash
# Installs OpenAI's and Anthropic's Python SDKs, each in a current version and in an old one.
. "$(dirname "$0")/../program/install.sh"
begin sdk-python "$0"
virtualenv "$dir/new" openai==3.51.0 anthropic==2.10.0
virtualenv "$dir/old" openai==1.30.5 anthropic==0.34.2 'httpx<0.28'
for age in new old; do
  versions+=("$age $("$dir/$age/bin/python" -c 'import openai, anthropic; print("openai", openai.__version__, "anthropic", anthropic.__version__)')")
done
finish "${versions[@]}"
