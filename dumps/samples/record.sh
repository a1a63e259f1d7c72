#!/bin/sh
# Records the bundled sample again: memcached with 4 worker threads on a 64 MiB store, filled and read at random.
# Needs root, memcached, qemu-user and the native tools (make native). Usage: dumps/samples/record.sh [DIR]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
out=${1:-$here/memcached}
socket=$(mktemp -u)
rm -rf "$out"
PATH="$root/.venv/bin:$PATH"
ptanalyze record -o "$out" -- memcached -A -u root -s "$socket" -t 4 -m 64 -I 64k &
recorder=$!
python3 "$here/memcached_load.py" "$socket" 8000 6000 1500
wait "$recorder"
rm -f "$socket"
ptanalyze check "$out"
