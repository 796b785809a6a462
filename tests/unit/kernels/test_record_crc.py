"""CRC-32: every body against zlib, and the constants of the folding against their definition."""

from __future__ import annotations

import re
import zlib
from pathlib import Path

import pytest

from support.kernel_bodies import NATIVE, Bodies, both
from support.own_process import run_python

DATA = bytes((i * 2654435761 >> 13) & 0xFF for i in range(3100))
POLYNOMIAL = 0x104C11DB7
HEADER = Path(__file__).parents[3] / "src" / "_native" / "base" / "rs_crc.h"

EVERY_LENGTH = """
import zlib
from rocketstore._native.record import crc32
data = bytes((i * 2654435761 >> 13) & 0xFF for i in range(3100))
view = memoryview(data)
for alignment in range(17):
    for n in range(3001):
        start = n * 77777 & 0xFFFFFFFF
        part = view[alignment:alignment + n]
        assert crc32(part, start) == zlib.crc32(part, start), (alignment, n)
print("all equal")
"""


def test_every_length_at_every_alignment() -> None:
    view = memoryview(DATA)
    for alignment in range(17):
        for n in range(3001):
            part = view[alignment : alignment + n]
            start = n * 77777 & 0xFFFFFFFF
            assert NATIVE.message.crc32(part, start) == zlib.crc32(part, start), (alignment, n)


@pytest.mark.parametrize("cpu", ["baseline", "avx2"])
def test_the_other_bodies(cpu: str) -> None:
    run = run_python(EVERY_LENGTH, ROCKETSTORE_CPU=cpu)
    if "must be able to run it" in run.stderr:
        assert cpu != "baseline"  # a machine without carry-less products has only this one
        return
    assert run.stdout == "all equal\n", run.stderr


def test_an_unknown_body_is_an_error() -> None:
    run = run_python("import rocketstore._native.record", ROCKETSTORE_CPU="avx1024")
    assert run.returncode == 1
    assert "ROCKETSTORE_CPU must be baseline, avx2 or avx512" in run.stderr


def test_known_values(kernels: Bodies) -> None:
    assert kernels.message.crc32(b"") == 0
    assert kernels.message.crc32(b"123456789") == 0xCBF43926
    assert kernels.message.crc32(b"hello") & 0x7FFFFFFF == 907060870


def test_continues_from_a_value() -> None:
    whole = both("message", "crc32", DATA)
    for split in (0, 1, 15, 16, 17, 63, 64, 1000, len(DATA)):
        assert both("message", "crc32", DATA[split:], zlib.crc32(DATA[:split])) == whole


def test_takes_any_contiguous_buffer() -> None:
    assert both("message", "crc32", bytearray(DATA)) == zlib.crc32(DATA)
    assert both("message", "crc32", memoryview(DATA)[5:]) == zlib.crc32(DATA[5:])
    with pytest.raises(BufferError, match="not C-contiguous"):
        both("message", "crc32", memoryview(DATA)[::2])


def x_to_the(n: int) -> int:
    """x^n modulo the polynomial."""
    remainder = 1
    for _ in range(n):
        remainder <<= 1
        if remainder >> 32:
            remainder ^= POLYNOMIAL
    return remainder


def reflected(value: int, bits: int = 32) -> int:
    return int(f"{value:0{bits}b}"[::-1], 2)


def test_folding_constants() -> None:
    found = dict(re.findall(r"#define (RS_FOLD_\w+|RS_CRC_\w+) (0x[0-9a-f]+)", HEADER.read_text()))
    for bits in (128, 256, 384, 512, 1024, 2048):
        assert int(found[f"RS_FOLD_{bits}_LOW"], 16) == reflected(x_to_the(bits + 32)) << 1
        assert int(found[f"RS_FOLD_{bits}_HIGH"], 16) == reflected(x_to_the(bits - 32)) << 1
    assert int(found["RS_FOLD_64"], 16) == reflected(x_to_the(64)) << 1
    assert int(found["RS_CRC_POLYNOMIAL"], 16) == reflected(POLYNOMIAL, 33)
    quotient, remainder = 0, 1 << 64
    for bit in range(64, 31, -1):
        if remainder >> bit & 1:
            quotient |= 1 << bit - 32
            remainder ^= POLYNOMIAL << bit - 32
    assert int(found["RS_CRC_QUOTIENT"], 16) == reflected(quotient, 33)
