"""Encoders of recordings and pictures in the standard library of Python, and mutations that keep their files parseable."""

import ctypes
import ctypes.util
import math
import random
import struct
import zlib


def tones(phones, rng, rate=8000):
    """Returns 16-bit samples: for each phone ("A", "B", …) a noisy tone of 0.1 s, with 0.1 s of noise around each tone."""
    samples = []
    for phone in "".join("." + p for p in phones) + ".":
        hertz = 0 if phone == "." else 400 * 2 ** (ord(phone) - ord("A"))
        samples += [int(9000 * math.sin(2 * math.pi * hertz * i / rate)) + rng.randrange(-300, 300)
                    for i in range(rate // 10)]
    return samples


def wav(samples, rate=8000, form=1):
    """Returns a WAV file of 16-bit integers (form 1) or 32-bit floats (form 3)."""
    body = struct.pack(f"<{len(samples)}h", *samples) if form == 1 else struct.pack(
        f"<{len(samples)}f", *[s / 32768 for s in samples])
    bits = 16 if form == 1 else 32
    head = struct.pack("<HHIIHH", form, 1, rate, rate * bits // 8, bits // 8, bits)
    chunks = b"fmt " + struct.pack("<I", len(head)) + head + b"data" + struct.pack("<I", len(body)) + body
    return b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks


def au(samples, rate=8000):
    """Returns an AU file of big-endian 16-bit samples, whose header does not contain the length."""
    return b".snd" + struct.pack(">5I", 24, 0xFFFFFFFF, 3, rate, 1) + struct.pack(f">{len(samples)}h", *samples)


def sphere(samples, rate=8000):
    """Returns a NIST SPHERE file of little-endian 16-bit samples."""
    head = ("NIST_1A\n   1024\n" + f"sample_count -i {len(samples)}\nsample_rate -i {rate}\nchannel_count -i 1\n"
            "sample_n_bytes -i 2\nsample_byte_format -s2 01\nsample_coding -s3 pcm\nend_head\n")
    return head.encode().ljust(1024) + struct.pack(f"<{len(samples)}h", *samples)


def _crc(data, bits, polynomial):
    value, top = 0, 1 << (bits - 1)
    for byte in data:
        value ^= byte << (bits - 8)
        for _ in range(8):
            value = ((value << 1) ^ polynomial if value & top else value << 1) & ((1 << bits) - 1)
    return value


def flac(samples, rate=8000, block=4096):
    """Returns a FLAC file of 16-bit samples, whose frames are not compressed."""
    info = struct.pack(">HH", block, block) + bytes(6)
    info += struct.pack(">Q", rate << 44 | 15 << 36 | len(samples)) + bytes(16)
    out = b"fLaC\x80" + struct.pack(">I", len(info))[1:] + info
    for number, first in enumerate(range(0, len(samples), block)):
        part = samples[first:first + block]
        head = b"\xff\xf8\x70\x08" + bytes([number]) + struct.pack(">H", len(part) - 1)
        frame = head + bytes([_crc(head, 8, 0x07), 0x02]) + struct.pack(f">{len(part)}h", *part)
        out += frame + struct.pack(">H", _crc(frame, 16, 0x8005))
    return out


class _SoundInfo(ctypes.Structure):
    """SF_INFO of libsndfile."""
    _fields_ = [("frames", ctypes.c_int64), ("samplerate", ctypes.c_int), ("channels", ctypes.c_int),
                ("format", ctypes.c_int), ("sections", ctypes.c_int), ("seekable", ctypes.c_int)]


OGG_VORBIS, OGG_OPUS = 0x200060, 0x200064  # formats of libsndfile


def write_ogg(path, samples, rate=8000, form=OGG_VORBIS):
    """Writes an Ogg file of 16-bit samples by libsndfile. Returns False if the library is absent or lacks the codec."""
    name = ctypes.util.find_library("sndfile")
    if not name:
        return False
    library = ctypes.CDLL(name)
    library.sf_open.restype = ctypes.c_void_p
    library.sf_write_short.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
    library.sf_write_short.restype = ctypes.c_int64
    library.sf_close.argtypes = [ctypes.c_void_p]
    info = _SoundInfo(samplerate=rate, channels=1, format=form)
    file = library.sf_open(str(path).encode(), 0x20, ctypes.byref(info))  # SFM_WRITE
    if not file:
        return False
    written = library.sf_write_short(file, (ctypes.c_short * len(samples))(*samples), len(samples))
    library.sf_close(file)
    return written == len(samples)


# The header of an Ogg page: "OggS", version, flags, granule position, serial number, page number, checksum, and the number
# of segments. The sizes of the segments and their contents follow.
OGG_HEADER = struct.Struct("<4sBBqIIIB")


def split_ogg(data):
    """Returns the pages of an Ogg file. Bytes that are not a page become a part of the page before them."""
    pages, at = [], 0
    while at < len(data):
        end = data.find(b"OggS", at + 4)
        if len(data) >= at + OGG_HEADER.size and data[at:at + 4] == b"OggS":
            segments = at + OGG_HEADER.size
            count = data[segments - 1]
            end = segments + count + sum(data[segments:segments + count])
        end = len(data) if end < 0 else min(end, len(data))
        pages.append(data[at:end])
        at = end
    return pages


OGG_TABLE = []


def mend_ogg(page):
    """Returns the page with a correct checksum."""
    if not OGG_TABLE:
        for byte in range(256):
            value = byte << 24
            for _ in range(8):
                value = (value << 1 ^ (0x04C11DB7 if value & 1 << 31 else 0)) & 0xFFFFFFFF
            OGG_TABLE.append(value)
    page = page[:22] + bytes(4) + page[26:]
    value = 0
    for byte in page:
        value = (value << 8 & 0xFFFFFFFF) ^ OGG_TABLE[value >> 24 ^ byte]
    return page[:22] + struct.pack("<I", value) + page[26:]


def _change_page(rng, page):
    """Changes a field of the header or a byte of the page. Mostly mends the checksum."""
    if len(page) < OGG_HEADER.size:
        return page
    fields = list(OGG_HEADER.unpack_from(page))
    field = rng.choice([2, 3, 3, 3, 4, 5, 7, None, None])
    if field is None:
        at = rng.randrange(len(page))
        page = page[:at] + bytes([page[at] ^ 1 << rng.randrange(8)]) + page[at + 1:]
    else:
        extremes = {2: range(8), 3: [-1, 0, 1, 2**62, -2**63, fields[3] - 64, fields[3] + 1, fields[3] + 100000],
                    4: [0, fields[4] + 1], 5: [0, fields[5] + 1, 2**32 - 1], 7: [0, 1, 255]}
        fields[field] = rng.choice(extremes[field])
        page = OGG_HEADER.pack(*[value & 0xFFFFFFFF if i in (4, 5) else value for i, value in enumerate(fields)]) + page[
            OGG_HEADER.size:]
    return mend_ogg(page) if rng.random() < 0.8 else page


def mutate_ogg(rng, data):
    """Returns an Ogg file whose pages are cut, removed, repeated, exchanged or changed, or that has foreign bytes."""
    pages = split_ogg(data)
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        if not pages:
            break
        i = rng.randrange(len(pages))
        choice = rng.randrange(9)
        if choice == 0:
            pages = pages[:i] + [pages[i][:rng.randrange(len(pages[i]) + 1)]]
        elif choice == 1:
            pages[-1] = pages[-1][:rng.randrange(len(pages[-1]) + 1)]
        elif choice == 2:
            pages.pop(i)
        elif choice == 3:
            pages.insert(i, rng.choice(pages))
        elif choice == 4:
            k = rng.randrange(len(pages))
            pages[i], pages[k] = pages[k], pages[i]
        elif choice == 5:
            pages.insert(i, rng.choice([rng.randbytes(50), b"OggS", b"ID3\4" + bytes(40), data]))
        else:
            pages[i] = _change_page(rng, pages[i])
    return b"".join(pages)


def wav_from_pipe(rng, samples, rate=8000):
    """Returns a WAV as programs write it to a pipe: its header has lengths that are unknown or wrong."""
    data = wav(samples, rate, rng.choice([1, 1, 3]))
    at = data.index(b"data") + 4
    true_bytes = len(data) - at - 4
    lengths = [0, 1, 0x7FFFF000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFFFFFE, 0xFFFFFFFF - 36, true_bytes - 1, true_bytes,
               true_bytes + 1, true_bytes + 2, 2 * true_bytes, true_bytes // 2]
    riff, length = rng.choice(lengths + [len(data) - 8] * 4), rng.choice(lengths)
    extra = rng.choice([b""] * 6 + [b"LIST" + struct.pack("<I", rng.choice([4, 5, 4096, 0xFFFFFFFF])) + b"INFO"])
    data = (rng.choice([b"RIFF"] * 9 + [b"RF64"]) + struct.pack("<I", riff) + data[8:at - 4] + extra + b"data"
            + struct.pack("<I", length) + data[at + 4:])
    return data[:rng.choice([len(data)] * 3 + [len(data) - 1, at, rng.randrange(len(data))])] + rng.choice(
        [b""] * 4 + [b"\0", b"LIST\4\0\0\0INFO", rng.randbytes(100)])


def png_chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def split_png(data):
    """Returns the chunks of a PNG as pairs of the type and the contents."""
    chunks, at = [], 8
    while at + 12 <= len(data):
        size = struct.unpack_from(">I", data, at)[0]
        chunks.append((data[at + 4:at + 8], data[at + 8:at + 8 + size]))
        at += 12 + size
    return chunks


def join_png(chunks):
    return b"\x89PNG\r\n\x1a\n" + b"".join(png_chunk(kind, body) for kind, body in chunks)


def png(rng, width, height, channels=3):
    rows = b"".join(b"\0" + rng.randbytes(width * channels) for _ in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, {1: 0, 3: 2, 4: 6}[channels], 0, 0, 0)
    return join_png([(b"IHDR", head), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")])


def _segment(marker, body):
    return bytes([0xFF, marker]) + struct.pack(">H", len(body) + 2) + body


def jpeg(rng, width, height):
    """Returns a gray JPEG in which each block of 8 x 8 pixels has one value."""
    # The Huffman codes for the category of a DC difference have 4 bits, and the only code of AC is the end of the block.
    bits = ""
    for _ in range(-(-width // 8) * -(-height // 8)):
        value = rng.randrange(-63, 64)
        size = abs(value).bit_length()
        bits += f"{size:04b}" + (f"{value if value > 0 else value + (1 << size) - 1:0{size}b}" if size else "") + "0"
    bits += "1" * (-len(bits) % 8)
    scan = bytes(int(bits[i:i + 8], 2) for i in range(0, len(bits), 8)).replace(b"\xff", b"\xff\0")
    return (b"\xff\xd8" + _segment(0xE0, b"JFIF\0\1\1\0\0\1\0\1\0\0") + _segment(0xDB, b"\0" + b"\x10" * 64)
            + _segment(0xC0, struct.pack(">BHHB", 8, height, width, 1) + b"\1\x11\0")
            + _segment(0xC4, b"\0" + bytes([0, 0, 0, 12]) + bytes(12) + bytes(range(12)))
            + _segment(0xC4, b"\x10" + bytes([1]) + bytes(15) + b"\0") + _segment(0xDA, b"\1\1\0\0\x3f\0") + scan + b"\xff\xd9")


def exif(rng):
    """Returns a TIFF structure with an orientation, and often with a wrong type, count, value, offset or length."""
    order = rng.choice("<>")
    odd = [0, 1, 2, 3, 4, 5, 7, 8, 255, 65535]
    entries = b""
    for tag in rng.choice([[0x0112]] * 4 + [[0x010F, 0x0112], [0x0112, 0x0112], []]):
        kind, count = (3, 1) if rng.random() < 0.7 else (rng.choice(odd), rng.choice(odd + [2**32 - 1]))
        value = rng.choice([*range(1, 9), 0, 9, 65535])
        entries += struct.pack(order + "HHIHH", tag, kind, count, value, rng.choice([0, 0, 1]))
    number = len(entries) // 12 if rng.random() < 0.8 else rng.choice(odd)
    offset = 8 if rng.random() < 0.8 else rng.choice(odd + [2**31, 2**32 - 1])
    head = ("II" if order == "<" else "MM").encode() + struct.pack(order + "HI", rng.choice([42] * 6 + [43, 0]), offset)
    whole = head + struct.pack(order + "H", number) + entries + bytes(4)
    return whole[:rng.choice([len(whole)] * 4 + [rng.randrange(len(whole) + 1)])]


def add_exif(rng, data):
    """Returns a PNG or JPEG with one or several blocks of EXIF."""
    for _ in range(rng.choice([1, 1, 1, 2])):
        block = exif(rng)
        if data.startswith(b"\x89PNG"):
            chunks = split_png(data)
            chunks.insert(rng.choice([1, 1, rng.randrange(len(chunks) + 1)]), (b"eXIf", rng.choice([b""] * 4 + [b"Exif\0\0"]) + block))
            data = join_png(chunks)
        else:
            at = rng.choice([2, 2, 20])  # before or after the segment of JFIF
            data = data[:at] + _segment(0xE1, rng.choice([b"Exif\0\0"] * 6 + [b"Exif\0", b"http://ns.adobe.com/xap/1.0/\0"]) + block) + data[at:]
    return data


def warn_jpeg(rng, data):
    """Returns a JPEG with a fault of which libjpeg warns: in the header, between markers, in the scan or at its end."""
    scan = data.index(b"\xff\xda")
    choice = rng.randrange(8)
    if choice == 0:  # the version of JFIF
        return data[:11] + bytes([rng.choice([0, 2, 9]), rng.choice([0, 1, 99])]) + data[13:]
    if choice == 1:  # bytes before a marker
        at = rng.choice([2, 20, scan, len(data) - 2])
        return data[:at] + rng.choice([b"\0", b"\0" * 40, b"\x12\x34"]) + data[at:]
    if choice == 2:  # no end of the image
        return data[:-2] + rng.choice([b"", b"\xff", b"\0\0"])
    if choice == 3:  # a scan that ends early
        return data[:rng.randrange(scan + 10, len(data))] + rng.choice([b"", b"\xff\xd9"])
    if choice == 4:  # restart markers
        at = rng.randrange(scan + 10, len(data) - 1)
        return data[:at] + bytes([0xFF, 0xD0 + rng.randrange(8)]) + data[at:]
    if choice == 5:  # a flipped bit of the scan
        at = rng.randrange(scan + 10, len(data) - 2)
        return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1:]
    if choice == 6:  # Adobe's marker with an unknown transform
        return data[:2] + _segment(0xEE, b"Adobe\0\x64\0\0\0\0" + bytes([rng.randrange(256)])) + data[2:]
    return data + rng.choice([b"\0" * 100, b"\xff\xd8", data])  # bytes after the image
