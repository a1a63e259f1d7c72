#!/bin/sh
# run.sh TRACER DIRECTORY: five small programs under `ptanalyze record --tracer TRACER`, a line for each; logs in DIRECTORY.
# PYTHON: the interpreter that has ptanalyze (python3). Exit status 1: a probe failed.
set -u
here=$(cd "$(dirname "$0")" && pwd)
tracer=$1
logs=$2
python=${PYTHON:-python3}
failed=0
"${CC:-cc}" -O1 -pthread -o "$logs/probe" "$here/probe.c" || exit 1
for probe in plain threads fork exec gather; do
    set -- --tracer "$tracer" --no-dump --follow-fork -o "$logs/$probe"
    "$python" -m ptanalyze record "$@" -- "$logs/probe" "$probe" >"$logs/$probe.out" 2>"$logs/$probe.err"
    status=$?
    base=$(head -n 1 "$logs/$probe.out")
    if [ "$probe" = gather ] && grep -q "status 77" "$logs/$probe.err"; then
        said="not run: this CPU has no AVX2"
    elif [ ! -f "$logs/$probe/trace.ptt" ]; then
        said="no trace: $(tail -n 1 "$logs/$probe.err")"
        failed=1
    else
        said=$("$python" "$here/judge.py" "$probe" "$logs/$probe" "$base" 2>&1 | tail -n 1)
        [ "$said" = ok ] || failed=1
    fi
    printf '%-8s exit %-3s %s\n' "$probe" "$status" "$said"
done
exit "$failed"
