#!/usr/bin/env bash
# Installs what drives the page: Chromium, Debian's where it is absent, and axe-core, which looks
# for what keeps people out.
. "$(dirname "$0")/../program/install.sh"
begin page "$0"
debian chromium chromium
debian node nodejs
debian npm npm
echo '{"private": true, "dependencies": {"axe-core": "4.14.1"}}' >"$dir/package.json"
(cd "$dir" && npm install --no-audit --no-fund --ignore-scripts --loglevel error)
test -s "$dir/node_modules/axe-core/axe.min.js"
finish "$(chromium --version 2>/dev/null)" "axe-core 4.14.1" "path $(command -v chromium)"
