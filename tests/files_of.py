"""Images and PDFs that are as small as their formats allow."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path


def png(width: int = 2, height: int = 3, text: bytes = b"") -> bytes:
    """A black PNG; a different text makes a different file."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        check = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check)

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress(b"".join(b"\0" * (width + 1) for _ in range(height)))
    parts = chunk(b"IHDR", head), chunk(b"tEXt", b"t\0" + text), chunk(b"IDAT", rows)
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts) + chunk(b"IEND", b"")


def jpeg(width: int, height: int) -> bytes:
    """The head of a JPEG, after a table of another kind."""
    table = b"\xff\xc4" + struct.pack(">H", 8) + b"\0" * 6
    frame = b"\xff\xc2" + struct.pack(">HBHHB", 8, 8, height, width, 0)
    return b"\xff\xd8\xff\xe0" + struct.pack(">H", 4) + b"JF\xff" + table + frame + b"\xff\xd9"


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + b"\0\0\0;"


def webp(kind: bytes, width: int, height: int) -> bytes:
    """The head of a WebP of one of its three kinds."""
    if kind == b"VP8X":
        sides = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
        data = b"\0" * 4 + sides
    elif kind == b"VP8L":
        data = b"\x2f" + struct.pack("<I", (width - 1) | (height - 1) << 14)
    else:
        data = b"\0\0\0\x9d\x01\x2a" + struct.pack("<HH", width, height)
    body = b"WEBP" + kind + struct.pack("<I", len(data)) + data
    return b"RIFF" + struct.pack("<I", len(body)) + body


def pdf(pages: int = 1, text: bytes = b"") -> bytes:
    """The parts of a PDF that are needed to count its pages."""
    every = b"".join(b"%d 0 obj <</Type /Page>> endobj\n" % n for n in range(pages))
    return b"%PDF-1.7\n1 0 obj <</Type /Pages>> endobj\n" + every + text + b"%%EOF\n"


def written(folder: Path, **contents: bytes) -> list[Path]:
    """Files in a folder; `a_png` is `a.png`."""
    paths = [folder / name.replace("_", ".") for name in contents]
    for path, content in zip(paths, contents.values(), strict=True):
        path.write_bytes(content)
    return paths
