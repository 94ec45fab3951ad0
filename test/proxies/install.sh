#!/usr/bin/env bash
# Installs the proxies that the tests of this folder put before kvasir and behind it: nginx
# and HAProxy, Debian's where they are absent.
. "$(dirname "$0")/../program/install.sh"
begin proxies "$0"
PATH=$PATH:/usr/sbin
debian nginx nginx
debian haproxy haproxy
finish "$(nginx -v 2>&1)" "$(haproxy -v | head -n 1)" "path $(command -v nginx)" "path $(command -v haproxy)"
