"""Fixtures shared by all tests."""

from __future__ import annotations

import pytest
from kernel_bodies import Bodies


@pytest.fixture(params=["native", "reference"])
def kernels(request: pytest.FixtureRequest) -> Bodies:
    """The kernel modules of one body: ``kernels.message.crc32`` and so on; runs a test on both."""
    return Bodies(request.param)
