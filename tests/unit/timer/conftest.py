"""A store for timer messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.timer_files import TimedStore


@pytest.fixture
def timed(tmp_path: Path) -> TimedStore:
    return TimedStore(tmp_path / "store")
