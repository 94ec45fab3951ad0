#!/usr/bin/env bash
# Installs OpenAI's and Anthropic's Node SDKs, each in a current version and in an old one.
. "$(dirname "$0")/../program/install.sh"
begin sdk-node "$0"
debian node nodejs
debian npm npm
cat >"$dir/package.json" <<'JSON'
{
  "private": true,
  "dependencies": {
    "openai-new": "npm:openai@7.55.0",
    "openai-old": "npm:openai@4.52.0",
    "anthropic-new": "npm:@anthropic-ai/sdk@1.10.0",
    "anthropic-old": "npm:@anthropic-ai/sdk@0.27.0"
  }
}
JSON
(cd "$dir" && npm install --no-audit --no-fund --ignore-scripts --loglevel error)
finish "node $(node --version)" "$(grep npm: "$dir/package.json")"
