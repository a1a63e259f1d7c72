"""Changes that know nothing of a format, and values that lie at the edges of one."""

import re

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
    *(b"[" * 5000, b"a.b.c = 1", b"[tlb]", b'"\\ud800" = 1', b"x" * 70000, b"{" * 3000, b"=" * 30, b"[[x]]"),
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
        data[at : at + length], data[other : other + length] = (
            data[other : other + length],
            data[at : at + length],
        )
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
