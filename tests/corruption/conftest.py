"""The store that most tests here damage: made once, copied for each."""

from __future__ import annotations

from pathlib import Path

import pytest

from corruption import crafted
from corruption.crafted import Crafted


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that was closed in order; not to be changed."""
    root = tmp_path_factory.mktemp("template") / "store"
    crafted.build(root)
    return root


@pytest.fixture
def store(template: Path, tmp_path: Path) -> Crafted:
    """A copy of it."""
    return Crafted(template, tmp_path / "store")
