"""Captures as a hostile or broken writer leaves them: files changed, mostly sealed again."""

import json
import zlib

from ptanalyze.formats.manifest import manifest_crc

from .changes import json_changed, maps_changed, tables_changed, trace_changed
from .noise import changed

WEIGHT = {
    **{"trace.ptt": 8, "gpt.entries": 5, "ept.entries": 5, "gpt.tables": 4, "ept.tables": 4},
    **{"snapshot.json": 4, "vm.json": 4, "maps": 3, "capture.json": 1, "record.json": 1},
}


def hostile(base, others, r):
    """{name: bytes} of a capture like `base`, a few of its files changed or from one of `others`."""
    files = dict(base)
    names = sorted(files)
    touched = set()
    for _ in range(r.choice([1, 1, 1, 2, 3])):
        (name,) = r.choices(names, [WEIGHT.get(name, 1) for name in names])
        odd, other = r.random(), r.choice(others)
        if odd < 0.03:
            files[name] = other.get(name, files[name])
        else:
            files[name] = b"" if odd < 0.04 else file_changed(name, files[name], r)
        touched.add(name)
        keep_twins_alike(files, name, r)
    if ("capture.json" not in touched or r.random() < 0.3) and r.random() < 0.97:
        reseal(files)
    return files


def file_changed(name, content, r):
    if name.endswith(".json") and r.random() < 0.85:
        try:
            return json_changed(content, r)
        except RecursionError:  # nested as deeply as Python goes, by a change before
            return changed(content, r)
    if name.endswith(".tables"):
        return tables_changed(content, r, 512, 24)
    if name.endswith(".entries"):
        return tables_changed(content, r, 4096, 4096)
    if name == "maps":
        return maps_changed(content, r)
    return trace_changed(content, r) if name == "trace.ptt" else changed(content, r)


def keep_twins_alike(files, name, r):
    """Give the header of tables to their entries, and what it says to the JSON file, now and then."""
    stem, _, ending = name.partition(".")
    if ending not in ("tables", "entries") or r.random() < 0.3:
        return
    twin = f"{stem}.{'entries' if ending == 'tables' else 'tables'}"
    head, facts = files[name][24:48], "snapshot.json" if stem == "gpt" else "vm.json"
    files[twin] = files[twin][:24] + head + files[twin][48:]
    try:
        said = json.loads(files[facts])
        said |= {"levels": int.from_bytes(head[8:12], "little")}
        said["encoding"] = head[12:].rstrip(b"\0").decode("latin1")
        files[facts] = json.dumps(said).encode()
    except (KeyError, ValueError, TypeError, RecursionError):
        pass


def reseal(files):
    """Put sizes and checksums right in the manifest, if it is one."""
    try:
        manifest = json.loads(files["capture.json"])
        manifest["files"] = {
            name: {"bytes": len(content), "crc32": zlib.crc32(content)}
            for name, content in files.items()
            if name != "capture.json"
        }
        manifest.setdefault("crc32", 0)
        manifest["crc32"] = manifest_crc(json.dumps(manifest).encode())
        files["capture.json"] = json.dumps(manifest).encode()
    except (ValueError, TypeError, RecursionError):
        pass
