"""Changes of files: blind ones, of records, with checksums kept right, of whole captures."""

import gzip
import io
import json
import lzma
import re
import zipfile
import zlib
from copy import deepcopy
from struct import pack_into, unpack_from

from ptanalyze.formats.record import manifest_crc

# Changes that know a file's format and keep its checksums right: what a hostile writer does.

HEADER, FRAME, EVENT = 4096, 48, 96  # bytes: trace.ptt
EVENT_FRAME = 2
HEADER_FIELDS = [(8, 4), (12, 4), (16, 4), (20, 4), (24, 8), (32, 4), (36, 4)]  # of tables and entries
TABLE_FIELDS = [(0, 8), (8, 8), (16, 4), (20, 2), (22, 1), (23, 1)]
TRACE_FIELDS = [
    *((0, 8), (8, 4), (12, 4), (16, 4), (24, 4), (28, 4), (32, 4), (36, 4)),
    *((40, 8), (48, 8), (56, 8), (64, 8), (72, 8), (80, 8), (88, 8), (88, 8)),
    *((4032, 2), (4088, 2), (4090, 2), (4092, 2)),
]
FRAME_FIELDS = [(8, 4), (12, 4), (16, 2), (18, 2), (20, 2), (22, 2), (24, 8), (32, 8), (40, 8)]
PAYLOAD_FIELDS = [(0, 4), (4, 4), (8, 8), (16, 8), (24, 8), (32, 8), (40, 8)]
FLAGS = [0x67, 0xE7, 0x867, 0x8E7, 0x37, 0xB7, 0x100, 0x180, 0, 0x80]
TAILS = [b" \xff\xfe", "é\u2028".encode(), b"\x1b[2J", b"<b>", b"x" * 70000, b"\r", b"\0", b"\x85", b"\t"]


def places(value, path=()):
    """Paths to everything below a JSON value."""
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from places(item, (*path, key))


def at(value, path):
    for key in path:
        value = value[key]
    return value


def json_changed(content, r):
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return changed(content, r)
    for _ in range(r.choice([1, 1, 1, 2, 4])):
        if paths := list(places(value)):
            change_json(value, paths, r)
    text = json.dumps(value, ensure_ascii=r.random() < 0.5)
    odd = r.random()
    if odd < 0.02:
        text = text.replace("1", "1e400", 1)
    elif odd < 0.04:
        text = text.replace("0", "NaN", 1)
    elif odd < 0.05:
        text = text.replace('"', '"\\ud800', 1)
    elif odd < 0.06:
        text = "[" * 100_000
    elif odd < 0.07:
        text = text[:-1] + ', "facts": ' + '{"a":' * 60_000 + "1" + "}" * 60_000 + "}"
    elif odd < 0.09:
        text = re.sub(r"\d+", lambda found: str(number(r)) if r.random() < 0.1 else found[0], text)
    return text.encode("utf-8", "surrogatepass")


def change_json(value, paths, r):
    *parents, last = r.choice(paths)
    parent, how = at(value, parents), r.randrange(6)
    if how <= 2:
        parent[last] = deepcopy(r.choice(VALUES)) if r.random() < 0.7 else number(r)
    elif how == 3:
        del parent[last]
    elif how == 4:
        parent[last] = json.loads(json.dumps(at(value, r.choice(paths))))
    elif isinstance(parent, dict):
        parent[r.choice(["zz", "", "levels", "node", "é", f"{last}x"])] = deepcopy(r.choice(VALUES))
    else:
        parent.append(json.loads(json.dumps(parent[last])))


def tables_changed(content, r, start, size):
    """Changes of NAME.tables (start 512, size 24) or NAME.entries (4096, 4096)."""
    if len(content) < start + size or r.random() < 0.2:
        return changed(content, r)
    data, count, how = bytearray(content), (len(content) - start) // size, r.randrange(6)
    one, other = (start + r.randrange(count) * size for _ in range(2))
    if how == 0:
        offset, width = r.choice(HEADER_FIELDS)
        put(data, offset, width, number(r))
    elif how == 1:
        data[36:48] = r.choice([b"x86", b"ept", b"kvm", b"", b"X86"]).ljust(12, b"\0")
    elif how == 2 and r.random() < 0.5:
        del data[one : one + size]
        put(data, 24, 8, count - 1)
    elif how == 2:
        data[one:one] = data[one : one + size]
        put(data, 24, 8, count + 1)
    elif size == 24 and how == 3:
        swap(data, one, other, size)
    elif size == 24:
        for _ in range(r.choice([1, 1, 2, 5])):
            offset, width = r.choice(TABLE_FIELDS)
            put(data, start + r.randrange(count) * size + offset, width, number(r))
    else:
        for _ in range(r.choice([1, 2, 8, 100])):
            place = start + r.randrange(count * 512) * 8
            put(data, place, 8, entry(int.from_bytes(data[place : place + 8], "little"), r))
    return bytes(data)


def entry(old, r):
    frame = r.choice([0, 1, 4096, 1 << 18, 1 << 22, 1 << 24, (1 << 25) - 1, (1 << 40) - 1, r.getrandbits(40)])
    return r.choice([old ^ (1 << r.randrange(64)), frame << 12 | r.choice(FLAGS), number(r), 0])


def frames_of(content):
    """(bytearrays of the frames of a trace, the rest)."""
    place, frames = HEADER, []
    while place + FRAME <= len(content) and content[place : place + 4] == b"PTTF":
        end = place + FRAME + unpack_from("<I", content, place + 8)[0]
        if end > len(content):
            break
        frames.append(bytearray(content[place:end]))
        place = end
    return frames, content[place:]


def trace_changed(content, r):
    if len(content) < HEADER or r.random() < 0.1:
        return changed(content, r)
    head, (frames, rest) = bytearray(content[:HEADER]), frames_of(content)
    for _ in range(r.choice([1, 1, 1, 2, 3, 8])):
        change_trace(head, frames, r)
    sums = r.random() < 0.93
    for frame in frames if sums else ():
        put(frame, 4, 4, 0)
        put(frame, 4, 4, zlib.crc32(frame))
    body = b"".join(map(bytes, frames)) + rest
    if r.random() < 0.8:
        put(head, 56, 8, HEADER + len(body))
    if sums:
        put(head, 20, 4, 0)
        put(head, 20, 4, zlib.crc32(head))
    return bytes(head) + body


def change_trace(head, frames, r):
    how = r.randrange(10)
    if how == 0 or not frames:
        offset, width = r.choice(TRACE_FIELDS)
        put(head, offset, width, number(r))
        return
    one, other = (r.randrange(len(frames)) for _ in range(2))
    events = [frame for frame in frames if len(frame) == EVENT and frame[16] == EVENT_FRAME]
    if how <= 2:
        offset, width = r.choice(FRAME_FIELDS)
        put(frames[one], offset, width, number(r))
    elif how <= 5 and events:
        offset, width = r.choice(PAYLOAD_FIELDS)
        near = 0x5555_5540_0000 + 4096 * r.randrange(-5, 3000)
        value = r.randrange(14) if offset == 0 else r.choice([number(r), near, 4096 * r.randrange(600)])
        put(r.choice(events), FRAME + offset, width, value)
    elif how == 6 and len(frames[one]) > FRAME:
        for _ in range(r.choice([1, 2, 10])):
            frames[one][r.randrange(FRAME, len(frames[one]))] ^= 1 << r.randrange(8)
    elif how == 7:
        frames[one], frames[other] = frames[other], frames[one]
    elif how == 8 and r.random() < 0.5:
        del frames[one]
    elif how == 8:
        frames.insert(one, bytearray(frames[other]))
    else:
        frames.insert(one, far_chunk(r))


def far_chunk(r):
    """A chunk of pages all over the address space."""
    count, touches = r.choice([1, 5, 100, 4096]), bytearray()
    for _ in range(count):
        touches.append(7 << 5 | r.randrange(2))
        touches += r.getrandbits(r.choice([20, 30, 36, 45])).to_bytes(6, "little")
    frame = bytearray(FRAME) + touches
    thread, cpu = r.choice([0, 1, 3, 77, 65535]), r.choice([-1, 0, 1, 2, 500])
    numbers = len(touches), count, 1, thread, cpu, 0, r.getrandbits(20), count, 7
    pack_into("<IIIIHHhHQQQ", frame, 0, 0x46545450, 0, *numbers)
    return frame


def maps_changed(content, r):
    if r.random() < 0.3:
        return changed(content, r)
    lines = content.split(b"\n")
    for _ in range(r.choice([1, 2, 4])):
        one, other, how = r.randrange(len(lines)), r.randrange(len(lines)), r.randrange(6)
        if how == 0:
            new = b"%x" % (number(r) & ((1 << 64) - 1))
            lines[one] = re.sub(rb"[0-9a-f]{4,16}", new, lines[one], count=1)
        elif how == 1:
            lines.insert(one, lines[other])
        elif how == 2 and len(lines) > 1:
            del lines[one]
        elif how == 3:
            lines[one], lines[other] = lines[other], lines[one]
        elif how == 4:
            lines[one] += r.choice(TAILS)
        else:
            ends = tuple(4096 * r.getrandbits(r.choice([10, 30, 45, 52])) for _ in range(2))
            lines[one] = b"%x-%x rw-p 00000000 00:00 0 " % ends
    return b"\n".join(lines)


# Changes of binary files of records, also of packed ones, and of NumPy's archives.

UNREADABLE = (OSError, EOFError, ValueError, lzma.LZMAError, zipfile.BadZipFile)


def record_changes(start, size, fields):
    """What changes a file of records of `size` bytes from byte `start` on; fields: [(offset, width)]."""

    def change(content, r):
        if len(content) < start + size or r.random() < 0.2:
            return changed(content, r)
        data, count, how = bytearray(content), (len(content) - start) // size, r.randrange(8)
        one, other = (start + r.randrange(count) * size for _ in range(2))
        if how == 0:
            put(data, r.randrange(0, max(start, 8), 4), r.choice([4, 8]), number(r))
        elif how == 1:
            del data[one : one + size]
        elif how == 2:
            data[one:one] = data[other : other + size]
        elif how == 3:
            swap(data, one, other, size)
        else:
            for _ in range(r.choice([1, 1, 2, 5])):
                offset, width = r.choice(fields)
                put(data, start + r.randrange(count) * size + offset, width, number(r))
        return bytes(data)

    return change


def packed(change, pack, unpack):
    """What changes a packed file: mostly what is in it."""

    def change_packed(content, r):
        if r.random() < 0.2:
            return changed(content, r)
        try:
            return pack(change(unpack(content), r))
        except UNREADABLE:
            return changed(content, r)

    return change_packed


def zipped(content):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("chunk.0000", content)
    return file.getvalue()


def unzipped(content):
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return b"".join(archive.read(name) for name in archive.namelist())


def in_gzip(change):
    return packed(change, lambda content: gzip.compress(content, 1), gzip.decompress)


def in_xz(change):
    return packed(change, lambda content: lzma.compress(content, preset=0), lzma.decompress)


def in_zip(change):
    return packed(change, zipped, unzipped)


# Changes that know nothing of a format, and values that lie at the edges of one.

POWERS = [1 << n for n in (20, 23, 24, 25, 31, 32, 33, 39, 40, 45, 47, 48, 52, 53, 56, 57, 62, 63, 64)]
INTS = [
    *(0, 1, 2, 3, 4, 5, 7, 8, 9, 11, 12, 15, 16, 31, 63, 64, 127, 128, 255, 256, 511, 512, 513, 1000),
    *(4095, 4096, 4097, 32767, 32768, 65535, 65536, *POWERS, *(power - 1 for power in POWERS)),
    *((1 << 47) - 4096, (1 << 64) - 4096, -1, -2, -22, -4096, -(1 << 31), -(1 << 63)),
]
NESTED = {"a": {"b": [1, 2, {"c": None}]}}
VALUES = [
    *(*INTS, -(1 << 64), 10**30, 0.5, -0.0, 1e308, -1e308, 5e-324, 1e19, True, False, None),
    *("", "x", "4", "kvm", "x86", "ept", "tdp_mmu", "shadow", "x" * 5000, "\x00", "a\nb", "../../etc/passwd"),
    *("\x1b[31mred\x1b]0;t\x07", "<script>alert(1)</script>", "é\u202e\U0001f600", "$\\frac{$", "=cmd"),
    *([], {}, [[]], [None], [[0, 1]], [[1, 0]], [[0, 1 << 62]], [0] * 300, NESTED),
]
TOKENS = [
    *(b"0", b"-1", b"1", b"nan", b"NaN", b"inf", b"-inf", b"1e308", b"1e309", b"1e400", b"1e-320", b"-0.0"),
    *(b"9" * 25, b"9" * 400, b"9" * 5000, b"0x10", b"1_000", "\u0661".encode(), "²".encode(), b"00"),
    *(b"true", b'""', b'"x"', b"[]", b"{}", b"[[]]", b"null", b"1979-05-27", b"1,5", b"%s", b"<not counted>"),
    *(str(power).encode() for power in POWERS),
    *(b"ffffffffffffffff", b"7fffffffffff", b"1000000000000000", b"65536", b"100000", b"0.0000001"),
    *(b"\x1b[31m", b"\xff", b"\0", "\u2028".encode(), b"\r", b"\x85"),
]
LINES = [
    *(b"[" * 5000, b"a.b.c = 1", b"[tlb]", b'"\\ud800" = 1', b"x" * 70000, b"{" * 3000, b"=" * 30, b"[[x]]")
]
WORDS = re.compile(rb"[0-9a-fA-F][0-9a-fA-F.]*|\"[^\"]*\"|[a-z_]+")


def number(r):
    """An integer of up to 64 bits, mostly at an edge."""
    kind = r.random()
    if kind < 0.6:
        return r.choice(INTS)
    if kind < 0.8:
        return r.choice(INTS) + r.randint(-3, 3)
    return r.getrandbits(r.choice([4, 8, 12, 16, 24, 32, 40, 48, 64]))


def put(data, at, width, value):
    """Write an integer into a bytearray, little endian, what fits of it."""
    data[at : at + width] = (value & ((1 << 8 * width) - 1)).to_bytes(width, "little")


def swap(data, one, other, size):
    first = data[one : one + size]
    data[one : one + size] = data[other : other + size]
    data[other : other + size] = first


def changed(content, r):
    """`content` with bits flipped, or bytes cut, moved, doubled, inserted, set or appended."""
    if not content:
        return r.randbytes(r.randint(0, 64))
    data = bytearray(content)
    length = min(r.choice([1, 4, 8, 16, 24, 48, 64, 512, 4096]), len(data))
    at, other = (r.randrange(len(data) - length + 1) for _ in range(2))
    how = r.randrange(9)
    if how == 0:
        for _ in range(r.choice([1, 1, 1, 2, 8, 64])):
            data[r.randrange(len(data))] ^= 1 << r.randrange(8)
    elif how == 1:
        del data[r.choice([0, 1, r.randrange(len(data)), len(data) - 1]) :]
    elif how == 2:
        swap(data, at, other, length)
    elif how == 3:
        del data[at : at + length]
    elif how == 4:
        data[at:at] = data[at : at + length]
    elif how == 5:
        data[at:at] = r.randbytes(r.choice([1, 2, 8, 100, 5000]))
    elif how == 6:
        width = r.choice([1, 2, 4, 8])
        put(data, r.randrange(max(1, len(data) - width)) // width * width, width, number(r))
    elif how == 7:
        data[at : at + length] = bytes([r.choice([0, 255, 65])]) * length
    else:
        data += r.randbytes(r.choice([1, 8, 24, 48, 4096]))
    return bytes(data)


def changed_text(content, r):
    """`content` with a few words replaced, or lines doubled, dropped, swapped, repeated or inserted."""
    for _ in range(r.choice([1, 1, 1, 2, 3])):
        how = r.randrange(9)
        if how == 0:
            content = changed(content, r)
        elif how <= 4:
            content = with_a_word_replaced(content, r)
        else:
            content = with_a_line_changed(content, r)
    return content


def with_a_word_replaced(content, r):
    if not (words := list(WORDS.finditer(content))):
        return content
    word = r.choice(words)
    new = r.choice(TOKENS) if r.random() < 0.8 else str(number(r)).encode()
    return content[: word.start()] + new + content[word.end() :]


def with_a_line_changed(content, r):
    lines = content.split(b"\n")
    at, other, how = r.randrange(len(lines)), r.randrange(len(lines)), r.randrange(5)
    if how == 0:
        lines.insert(at, lines[other])
    elif how == 1:
        del lines[at]
    elif how == 2:
        lines[at], lines[other] = lines[other], lines[at]
    elif how == 3:
        lines[at] = lines[at] * r.choice([2, 50])
    else:
        lines[at:at] = [r.choice(LINES)]
    return b"\n".join(lines)


# Captures as a hostile or broken writer leaves them: files changed, mostly sealed again.

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
