"""One Spark session serves a group of files: ``spark``, and in another process ``spark-streams``.

Tests whose sessions live in processes of their own are in the group ``spark-apart``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support import random_stores
from support.message_table import scanned


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A session with two task slots in this process."""
    from rocketstore.spark import local_session

    # On a busy machine a worker needs more than Spark's 15 s to come up.
    settings = {"spark.python.authenticate.socketTimeout": "120s"}
    settings["spark.sql.warehouse.dir"] = str(tmp_path_factory.mktemp("warehouse"))
    session = local_session("rocketstore tests", cores=2, **settings)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def random_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed store of 300,000 messages in several segments."""
    root = tmp_path_factory.mktemp("random") / "store"
    random_stores.make(root, random_stores.ROWS)
    return root


@pytest.fixture(scope="session")
def random_table(random_store: Path) -> Any:
    """What ``store.scan`` yields of it, as an Arrow table of the columns ``core``."""
    from rocketstore.arrow.columns import resolve

    return scanned(random_store, resolve("core"))
