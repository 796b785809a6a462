"""One Spark session serves all tests of this folder: each file joins the group ``spark``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A session with two task slots in this process."""
    from rocketstore.spark import local_session

    session = local_session("rocketstore tests", cores=2, **{"spark.ui.showConsoleProgress": False})
    yield session
    session.stop()
