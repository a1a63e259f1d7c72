"""The touch encoding of pintool/records.h, word for word, in plain Python."""

RECENT = 6


def encode(touches):
    """bytes of one chunk from [(page, write, count)]."""
    recent, base, other, spelled, out = [0] * RECENT, 0, 0, 3, bytearray()
    for page, write, count in touches:
        tail = b""
        if page in recent:
            kind, low = 0, recent.index(page)
            recent.remove(page)
        else:
            recent.pop()
            delta = zigzag(page - base)
            if delta < 1 << 27:
                kind = next(k for k in (1, 2, 3) if delta < 1 << (3 + 8 * k))
                low, tail = delta & 7, (delta >> 3).to_bytes(kind, "little")
            else:
                base, other = other, base
                kind, delta = 0, zigzag(page - base)
                if delta < 1 << 32:
                    low, tail = 6, delta.to_bytes(4, "little")
                else:
                    low, tail = 7, page.to_bytes(6, "little")
            base = page
        recent.insert(0, page)
        code = count - 1 if count < 3 else 2 if count == spelled else 3
        out.append(write | code << 1 | kind << 3 | low << 5)
        out += tail
        if code == 3:
            spelled = count
            out += leb128(count - 3)
    return bytes(out)


def decode(data, n):
    """[(page, write, count)] of the first n touches of a chunk, and the bytes left over."""
    recent, base, other, spelled, touches = [0] * RECENT, 0, 0, 3, []
    for _ in range(n):
        first, data = data[0], data[1:]
        kind, low = first >> 3 & 3, first >> 5
        if kind == 0 and low < RECENT:
            page = recent.pop(low)
        else:
            size = kind or (4 if low == 6 else 6)
            bits, data = int.from_bytes(data[:size], "little"), data[size:]
            if kind:
                bits = bits << 3 | low
            else:
                base, other = other, base
            page = bits if size == 6 else base + (bits >> 1 if bits % 2 == 0 else -(bits >> 1) - 1)
            base = page
            recent.pop()
        recent.insert(0, page)
        code = first >> 1 & 3
        count = code + 1 if code < 2 else spelled
        if code == 3:
            count = 3
            shift = 0
            while True:
                byte, data = data[0], data[1:]
                count += (byte & 127) << shift
                shift += 7
                if byte < 128:
                    break
            spelled = count
        touches.append((page, bool(first & 1), count))
    return touches, data


def zigzag(delta):
    return 2 * delta if delta >= 0 else -2 * delta - 1


def leb128(value):
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
