"""Bodies as their producers gave them."""

from __future__ import annotations

import sys
import zlib

import pyarrow
import pytest

from rocketstore import body_codec, formats
from rocketstore.body_codec import decompressed
from rocketstore.errors import DecodeError

BODY = b"a body that is long enough to be compressed " * 50
PACKED = formats.SYS_FLAG_COMPRESSED


def packed(codec: str) -> bytes:
    sink = pyarrow.BufferOutputStream()
    with pyarrow.CompressedOutputStream(sink, codec) as stream:
        stream.write(BODY)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize(
    ("flag", "stored"),
    [
        (0, BODY),
        (formats.COMPRESSION_LZ4, BODY),
        (PACKED, zlib.compress(BODY)),
        (PACKED | formats.COMPRESSION_ZLIB, zlib.compress(BODY)),
        (PACKED | formats.COMPRESSION_LZ4, packed("lz4")),
        (PACKED | formats.COMPRESSION_ZSTD, packed("zstd")),
    ],
)
def test_bodies(flag: int, stored: bytes) -> None:
    assert decompressed(stored, flag) == BODY


@pytest.mark.parametrize(
    ("kind", "stored"),
    [
        (kind, stored)
        for kind in (0, 1, 2, 3)
        for stored in (b"", b"x", b"no frame at all", packed("zstd")[:9])
        if stored or kind in (0, 3)  # no frame at all decompresses to nothing
    ],
)
def test_what_is_not_compressed_so_is_named(kind: int, stored: bytes) -> None:
    with pytest.raises(DecodeError, match="the body is not"):
        decompressed(stored, PACKED | kind << 8)


@pytest.mark.parametrize("kind", [4, 7])
def test_unknown_types(kind: int) -> None:
    with pytest.raises(DecodeError, match=rf"unknown compression type \({kind}\)"):
        decompressed(BODY, PACKED | kind << 8)


@pytest.mark.parametrize("kind", [0, 1, 2, 3])
def test_a_bomb_is_not_unpacked(kind: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_codec, "MAX_BODY_NBYTES", len(BODY) - 1)
    stored = {1: packed("lz4"), 2: packed("zstd")}.get(kind, zlib.compress(BODY))
    with pytest.raises(DecodeError, match="more than"):
        decompressed(stored, PACKED | kind << 8)


@pytest.mark.parametrize("kind", [1, 2])
def test_without_a_package_the_error_says_what_to_install(
    kind: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("pyarrow", "lz4", "lz4.frame", "zstandard"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(DecodeError, match=r"rocketstore\[arrow\]"):
        decompressed(b"x", PACKED | kind << 8)
