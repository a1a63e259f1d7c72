#!/bin/sh
# PIN_ROOT=/path/to/kit pintool/try-pin.sh [REPORT]: builds the Pin tool, runs five small programs under it, and writes a
# report to send (default pin-report.txt). It downloads nothing. PYTHON: the interpreter that has ptanalyze (python3).
set -u
here=$(cd "$(dirname "$0")" && pwd)
report=${1:-pin-report.txt}
python=${PYTHON:-python3}
kit=${PIN_ROOT:-}

refuse() {
    echo "try-pin: $1" >&2
    exit 2
}

[ -n "$kit" ] || refuse "PIN_ROOT is not set: get a Pin 3 kit for Linux (gcc) from Intel, unpack it, and name the directory that has its program pin: PIN_ROOT=/path/to/pin-3.x-gcc-linux"
[ -x "$kit/pin" ] || refuse "$kit: no program pin in it; PIN_ROOT names the unpacked kit's own directory"
[ -f "$kit/source/tools/Config/makefile.config" ] || refuse "$kit: no source/tools/Config/makefile.config; unpack the whole kit"
"$python" -c "import ptanalyze" 2>/dev/null || refuse "$python has no ptanalyze: PYTHON=/path/to/python names the one that does"
touch -- "$report" 2>/dev/null || refuse "$report: cannot be written; name another file: try-pin.sh REPORT"

logs=$(mktemp -d) || exit 1
trap 'rm -rf "$logs"' EXIT
{
    echo "Pin tool of ptanalyze $("$python" -c 'import ptanalyze; print(ptanalyze.__version__)')"
    "$kit/pin" -version 2>&1 | head -n 3
    echo "Linux $(uname -r); $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)"
    "${CXX:-g++}" --version | head -n 1
    if make -C "$here" pin PIN_ROOT="$kit" >"$logs/build" 2>&1; then
        echo "built"
        PATH="$kit:$PATH" PYTHON="$python" "$here/probes/run.sh" pin "$logs"
        status=$?
        echo "Messages:"
        tail -n 5 "$logs"/*.err
    else
        echo "not built:"
        grep -v '^g++\|^make' "$logs/build" | tail -n 20
        status=1
    fi
} >"$report" 2>&1
cat "$report"
echo "try-pin: this is in $report; please send it with a bug report, also if all five are ok" >&2
exit "$status"
