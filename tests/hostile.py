"""A capture whose every name was chosen to do harm where it is shown."""

import json
import shutil

from ptanalyze.formats.manifest import read_manifest, seal

EVIL = "\x1b]0;title\x07\x1b[31m\u202e\u2066two\u2028lines\x9b1m\x7f$\\frac{$ <script>alert(1)</script>\"'>"
FORMULA = "=HYPERLINK(1)"
HARM = {"\x1b", "\x07", "\x9b", "\x7f", "\u202e", "\u2066", "\u2028"}
NO_UTF8 = b"/tmp/caf\xe9$\\frac{$.dat"


def hostile_copy(source, target):
    """Copy the capture `source` to `target` with names that do harm, and seal it again; returns `target`."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns(".cache"))
    lines = (target / "maps").read_bytes().splitlines()
    names = [EVIL.encode(), FORMULA.encode(), NO_UTF8]
    lines = [b" ".join([*line.split()[:5], names[k % len(names)]]) for k, line in enumerate(lines)]
    (target / "maps").write_bytes(b"\n".join(lines) + b"\n")
    snapshot = json.loads((target / "snapshot.json").read_bytes())
    words = {
        key: EVIL for key, value in snapshot["facts"].items() if isinstance(value, str) and key != "time"
    }
    snapshot["facts"] |= words | {"comm": EVIL, EVIL: EVIL, "unknown": [EVIL]}
    snapshot["facts"].get("completeness", {}).update(explained=False, explanation=EVIL)
    (target / "snapshot.json").write_text(json.dumps(snapshot))
    kind = read_manifest(target).kind
    seal(target, kind, {"command": EVIL, EVIL: EVIL, "trace": EVIL, "list": [EVIL]})
    return target
