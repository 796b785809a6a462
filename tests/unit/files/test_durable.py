"""What files hold where nothing was written."""

from __future__ import annotations

import pytest

from rocketstore.files.durable import is_zeros


@pytest.mark.parametrize("nbytes", [0, 1, 7, 4096, 65_537])
def test_zeros_alone(nbytes: int) -> None:
    assert is_zeros(bytes(nbytes))


@pytest.mark.parametrize("at", [0, 1, 4095])
def test_one_other_byte(at: int) -> None:
    chunk = bytearray(4096)
    chunk[at] = 1
    assert not is_zeros(bytes(chunk))
