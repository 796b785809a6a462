"""Bodies as their producers gave them: decompressed as the record's flags say."""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Callable
from typing import Any

from rocketstore import formats
from rocketstore.errors import DecodeError

#: Bytes that a body may have after decompression.
MAX_BODY_NBYTES = 64 << 20
_MEMBER = "rocketstore[arrow]"


def decompressed(body: bytes, sys_flag: int) -> bytes:
    """Return the body that a producer compressed.

    Parameters
    ----------
    body : bytes
        As stored.
    sys_flag : int
        Tells whether it is compressed, and how: zlib, LZ4 frames or Zstandard.

    Returns
    -------
    bytes
        ``body`` itself if it is not compressed.

    Raises
    ------
    DecodeError
        The body is not what its flag says, has more than 64 MiB, or no installed package
        decompresses it: LZ4 and Zstandard need pyarrow, lz4 or zstandard.
    """
    if not sys_flag & formats.SYS_FLAG_COMPRESSED:
        return body
    kind = sys_flag & formats.SYS_FLAG_COMPRESSION_TYPE_MASK
    unpack = _UNPACK.get(kind)
    if unpack is None:
        raise DecodeError(f"unknown compression type ({kind >> 8})")
    content = unpack(body)
    if len(content) > MAX_BODY_NBYTES:
        raise DecodeError(f"the body has more than {MAX_BODY_NBYTES >> 20} MiB")
    return content


def _zlib(body: bytes) -> bytes:
    machine = zlib.decompressobj()
    try:
        content = machine.decompress(body, MAX_BODY_NBYTES + 1)
    except zlib.error as error:
        raise DecodeError(f"the body is not zlib: {error}") from None
    if not machine.eof and len(content) <= MAX_BODY_NBYTES:
        raise DecodeError("the body is not zlib: it ends too early")
    return content


def _with(*ways: Callable[[bytes], bytes], name: str) -> Callable[[bytes], bytes]:
    """Return a function that tries the packages in turn; one that is not installed is skipped."""

    def unpack(body: bytes) -> bytes:
        for way in ways:
            try:
                return way(body)
            except ImportError:
                continue
            except (OSError, RuntimeError, ValueError, EOFError) as error:
                raise DecodeError(f"the body is not {name}: {error}") from None
        raise DecodeError(f"no package for {name} is installed: `pip install '{_MEMBER}'`")

    return unpack


def _arrow(codec: str) -> Callable[[bytes], bytes]:
    def unpack(body: bytes) -> bytes:
        import pyarrow

        with pyarrow.CompressedInputStream(pyarrow.BufferReader(body), codec) as stream:
            return bytes(stream.read(MAX_BODY_NBYTES + 1))

    return unpack


def _lz4_package(body: bytes) -> bytes:
    lz4: Any = importlib.import_module("lz4.frame")
    machine = lz4.LZ4FrameDecompressor()
    content: bytes = machine.decompress(body, MAX_BODY_NBYTES + 1)
    if not machine.eof and len(content) <= MAX_BODY_NBYTES:
        raise EOFError("it ends too early")
    return content


def _zstandard_package(body: bytes) -> bytes:
    zstandard: Any = importlib.import_module("zstandard")
    try:
        with zstandard.ZstdDecompressor().stream_reader(body) as stream:
            return bytes(stream.read(MAX_BODY_NBYTES + 1))
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from None


_UNPACK: dict[int, Callable[[bytes], bytes]] = {
    0: _zlib,
    formats.COMPRESSION_ZLIB: _zlib,
    formats.COMPRESSION_LZ4: _with(_arrow("lz4"), _lz4_package, name="LZ4"),
    formats.COMPRESSION_ZSTD: _with(_arrow("zstd"), _zstandard_package, name="Zstandard"),
}
