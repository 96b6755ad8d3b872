"""Mutations of bytes and of text. The public functions take a random.Random and return new bytes."""

import struct

NUMBERS = [
    "0", "-0", "-1", "1", "2", "3", "7", "255", "256", "65535", "65536", "1048577", "2147483647", "2147483648",
    "4294967296", "9223372036854775807", "9223372036854775808", "-9223372036854775808", "99999999999999999999",
    "0.5", "-0.5", "1e-308", "1e308", "1e400", "nan", "inf", "-inf", "0x10", "1_000", "1e9", "08", "+1", "1.", ".5",
]

# Terminal control sequences, invalid UTF-8, and texts with a meaning to parsers and shells.
TEXTS = [
    b"", b" ", b"\t", b"-", b"--", b"=", b"\"", b"'", b"[", b"{", b"#", b"%s%n", b"\\", b".", b"a/../b",
    b"\x1b[31mred\x1b[0m", b"\x1b]0;title\x07", b"\xc2\x9b31m", b"\x9b31m", b"\xe2\x80\xaeevil", b"\xe2\x81\xa6",
    b"\rforged: line", b"a\nforged: line", b"\x7f", b"\xff\xfe", b"\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80",
    b"\xef\xbb\xbf", "é".encode(), "名".encode(), b"A" * 300, b"B" * 5000, b"<blank>", b"|", b"touch escaped |", b"$(touch escaped)",
]


def pick_text(rng):
    """Returns one of TEXTS, either alone or before or after a word."""
    text = rng.choice(TEXTS)
    return rng.choice([text, text, b"word" + text, text + b"word"])


def _extreme(rng):
    order = rng.choice("<>")
    kind, values = rng.choice([
        ("H", [0, 1, 0x7FFF, 0x8000, 0xFFFF]),
        ("I", [0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x40000000]),
        ("Q", [0, 1, 2**31, 2**32, 2**62, 2**63 - 1, 2**63, 2**64 - 1]),
        ("f", [0.0, -1.0, 1e38, float("nan"), float("inf"), float("-inf")]),
    ])
    return struct.pack(order + kind, rng.choice(values))


def _span(rng, size):
    first = rng.randrange(size + 1)
    return first, min(size, first + rng.choice([1, 2, 4, 8, 64, 512]))


def _mutate_once(rng, data, other):
    # Half of the mutations are in the first 64 bytes, because headers affect parsers most.
    size = len(data)
    offset = rng.randrange(min(size, 64) if rng.random() < 0.5 else size) if size else 0
    choice = rng.randrange(10)
    if choice <= 1 and size:
        return data[:offset] + bytes([data[offset] ^ (1 << rng.randrange(8))]) + data[offset + 1:]
    if choice == 2 and size:
        return data[:offset] + bytes([rng.randrange(256)]) + data[offset + 1:]
    if choice == 3:
        return data[:offset]
    if choice <= 5:
        extreme = _extreme(rng)
        return data[:offset] + extreme + data[offset + len(extreme):]
    first, last = _span(rng, size)
    if choice == 6:
        return data[:first] + data[last:]
    if choice == 7:
        return data[:offset] + data[first:last] * rng.choice([1, 2, 50]) + data[offset:]
    if choice == 8:
        return data[:offset] + rng.choice([pick_text(rng), rng.randbytes(rng.choice([1, 4, 100]))]) + data[offset:]
    return data[:offset] + other[rng.randrange(len(other) + 1):]


def mutate_bytes(rng, data, other=b""):
    """Returns `data` with one, two or four mutations, or rarely unrelated bytes. Mutations may insert parts of `other`."""
    if rng.random() < 0.03:
        return rng.choice([b"", b"\0" * 1000, rng.randbytes(200)])
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        data = _mutate_once(rng, data, other)
    return data


def _is_number(word):
    return bool(word) and all(byte in b"0123456789.+-eE_" for byte in word)


def _mutate_line(rng, line):
    words = line.split(b" ")
    i = rng.randrange(len(words))
    choice = rng.randrange(8)
    numbers = [k for k, word in enumerate(words) if _is_number(word.strip(b"[],"))]
    if choice <= 2 and numbers:
        i = rng.choice(numbers)
        words[i] = words[i].replace(words[i].strip(b"[],"), rng.choice(NUMBERS).encode())
    elif choice <= 4:
        words[i] = pick_text(rng)
    elif choice == 5:
        words.pop(i)
    elif choice == 6:
        words.insert(i, rng.choice(words))
    else:
        offset = rng.randrange(len(words[i]) + 1)
        words[i] = words[i][:offset] + pick_text(rng) + words[i][offset:]
    return b" ".join(words)


def mutate_text(rng, data, other=b""):
    """Returns text in which lines or words are changed, removed, repeated, exchanged or replaced by difficult texts."""
    if rng.random() < 0.15:
        return mutate_bytes(rng, data, other)
    lines = data.split(b"\n")
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        i = rng.randrange(len(lines))
        choice = rng.randrange(8)
        if choice <= 3:
            lines[i] = _mutate_line(rng, lines[i])
        elif choice == 4 and len(lines) > 1:
            lines.pop(i)
        elif choice == 5:
            lines.insert(i, rng.choice(lines))
        elif choice == 6:
            lines.insert(i, rng.choice([pick_text(rng)] + other.split(b"\n")))
        else:
            k = rng.randrange(len(lines))
            lines[i], lines[k] = lines[k], lines[i]
    return rng.choice([b"\n"] * 9 + [b"\r\n"]).join(lines)
