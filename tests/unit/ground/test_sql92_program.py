"""The program of SQL92 filters: facts that another source knows, too."""

from __future__ import annotations

import sys
import unicodedata

from rocketstore.sql92_program import DIGIT_ZEROS, LAYOUTS


def test_digits_are_those_of_unicode() -> None:
    """``Character.digit`` of a ``char`` takes the decimal digits of the basic plane."""
    known = [
        point
        for point in range(0x10000)
        if unicodedata.category(chr(point)) == "Nd" and unicodedata.digit(chr(point)) == 0
    ]
    # Python 3.11 to 3.14 have Unicode 14 to 16; the digits of the plane have not changed since 7.
    assert list(DIGIT_ZEROS) == known, sys.version
    assert all(
        unicodedata.digit(chr(zero + digit)) == digit for zero in DIGIT_ZEROS for digit in range(10)
    )


def test_layouts_have_no_padding() -> None:
    assert [layout.nbytes for layout in LAYOUTS] == [32, 16, 8]
    assert all(layout.native for layout in LAYOUTS)
