#!/bin/sh
# Records the sample `lookup` again: lookups in a key-value store that one thread filled (lookup.c), four threads.
# Traced are one lookup of every key by each thread. Takes some seconds and 1.4 GB of memory.
# Needs root, a C compiler, qemu-user and the native tools (make native). Usage: dumps/samples/record_lookup.sh [DIR]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
out=${1:-$here/lookup}
program=$(mktemp -d)
trap 'rm -rf "$program"' EXIT
cc -O2 -Wall -pthread -I"$root/pintool" -o "$program/lookup" "$here/lookup.c"
rm -rf "$out"
PATH="$program:$root/.venv/bin:$PATH"
ptanalyze record -o "$out" --roi-marker -- lookup
xz -9e "$out"/gpt.entries "$out"/trace.ptt    # as they are in the repository; commands read both
ptanalyze check "$out"
