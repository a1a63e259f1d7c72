"""Changes that know a file's format and keep its checksums right: what a hostile writer does."""

import json
import re
import zlib
from copy import deepcopy
from struct import pack_into, unpack_from

from .noise import VALUES, changed, number, put

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
    """Of NAME.tables (start 512, size 24) or NAME.entries (4096, 4096)."""
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
        data[one : one + size], data[other : other + size] = (
            data[other : other + size],
            data[one : one + size],
        )
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
