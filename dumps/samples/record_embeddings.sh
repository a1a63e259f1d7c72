#!/bin/sh
# Records the sample `embeddings` again: rows of an embedding table of 1 GiB, which ONNX Runtime maps from a file, looked up
# at random by four threads (embeddings.py); every page was touched before. It stands for a table of 16 GiB. Takes a minute,
# 1.2 GB of memory. Needs root, qemu-user, the native tools (make native), and fetches onnxruntime and onnx.
# Usage: dumps/samples/record_embeddings.sh [DIR]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
out=$(realpath -m "${1:-$here/embeddings}")
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
python3 -m venv "$made/venv"
"$made/venv/bin/pip" install --quiet onnxruntime==1.32.0 onnx
cp "$here/embeddings.py" "$made"
rm -rf "$out"
cd "$made"
PATH="$made/venv/bin:$PATH"
python embeddings.py make .
OPENBLAS_NUM_THREADS=1 "$root/.venv/bin/ptanalyze" record -o "$out" --roi-marker -- python embeddings.py look-up .
"$root/.venv/bin/python" - "$out" <<'END' # Snapshot.scale: what 16 times the memory would do
import json, sys
from pathlib import Path
from ptanalyze.formats.record import read_manifest, seal

out = Path(sys.argv[1])
record = json.loads((out / "snapshot.json").read_text())
record["facts"]["scale"] = 16
(out / "snapshot.json").write_text(json.dumps(record, indent=1))
manifest = read_manifest(out)
seal(out, manifest.kind, manifest.provenance)
END
xz -9e "$out"/gpt.entries "$out"/trace.ptt    # as they are in the repository; commands read both
"$root/.venv/bin/ptanalyze" check "$out"
