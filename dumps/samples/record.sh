#!/bin/sh
# Records the bundled sample again: sysbench's random memory test, 4 threads reading one 256 MiB buffer that the
# main thread filled. Traced are 4 million accesses after the filling. Takes a few minutes.
# Needs root, sysbench, qemu-user and the native tools (make native). Usage: dumps/samples/record.sh [DIR]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
out=${1:-$here/sysbench-memory}
rm -rf "$out"
PATH="$root/.venv/bin:$PATH"
ptanalyze record -o "$out" --roi-start-access 320000000 --roi-accesses 4000000 -- \
    sysbench memory run --threads=4 --memory-block-size=256M --memory-total-size=1G \
    --memory-scope=global --memory-access-mode=rnd --memory-oper=read
ptanalyze check "$out"
