# Sourced by the install scripts of the suites beside this folder: where what they install
# goes, and how it gets there. Everything lands in .cache of the repository, or in the folder
# that KVASIR_TEST_CACHE names; Debian's packages are the exception.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cache=${KVASIR_TEST_CACHE:-.cache}
case $cache in
  /*) ;;
  *) cache=$root/$cache ;;
esac

# begin SUITE FILE... sets dir and marker. It ends the script where these files have
# installed the suite already; until it is installed anew there is no marker.
begin() {
  local suite=$1
  shift
  dir=$cache/$suite marker=$cache/$suite/installed
  sum=$(cat "$@" | cksum)
  if [ -f "$marker" ] && [ "$(head -n 1 "$marker")" = "$sum" ]; then
    echo "$suite: installed in $dir"
    exit 0
  fi
  mkdir -p "$dir"
  echo '*' >"$cache/.gitignore"
  rm -f "$marker"
}

# finish VERSION... writes the marker.
finish() {
  printf '%s\n' "$sum" "$@" >"$marker.new"
  mv "$marker.new" "$marker"
  cat "$marker"
}

# debian COMMAND PACKAGE installs a package where its command is absent.
debian() {
  command -v "$1" >/dev/null && return
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "$1 is absent: install it ($2), or run this as root on Debian" >&2
    return 1
  fi
  DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$2" ||
    { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$2"; }
}

# virtualenv FOLDER REQUIREMENT... makes a Python environment.
virtualenv() {
  local folder=$1
  shift
  debian python3 python3
  if ! python3 -m venv --clear "$folder"; then
    debian /nowhere python3-venv
    python3 -m venv --clear "$folder"
  fi
  "$folder/bin/python" -m pip install -q --disable-pip-version-check "$@"
}
