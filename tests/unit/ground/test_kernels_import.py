"""Importing the package loads nothing heavy; what is public is there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import rocketstore

#: Where the package under test is; other tests may have put further folders into ``sys.path``.
SOURCE = str(Path(rocketstore.__file__).parent.parent)
HEAVY = ("numpy", "pandas", "pyarrow", "pyspark", "rich", "typer", "logging.config", "asyncio")


def test_import_loads_nothing_heavy() -> None:
    program = "import sys, rocketstore; print(' '.join(sys.modules))"
    environment = {**os.environ, "PYTHONPATH": SOURCE}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.split())
    assert "rocketstore.store.default_message_store" in loaded
    assert sorted(loaded & set(HEAVY)) == []


def test_opening_and_putting_load_no_numpy(tmp_path: Path) -> None:
    program = """
import sys, rocketstore
for mode in ("x", "r+", "r"):
    with rocketstore.open(sys.argv[1], mode=mode) as store:
        if mode != "r":
            store.put("T", b"body")
            store.put("T", b"late", delay_level=1)
        found = store.get_message("group", "T", 0, 0).messages
assert len(found) == 2
print(" ".join(sys.modules))
"""
    environment = {**os.environ, "PYTHONPATH": SOURCE}
    command = [sys.executable, "-c", program, tmp_path / "store"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.split())
    assert sorted(loaded & {"numpy", "pandas", "pyarrow"}) == []


def test_every_public_name_is_there() -> None:
    for name in rocketstore.__all__:
        assert getattr(rocketstore, name) is not None


def test_unknown_body_of_kernels_is_an_error() -> None:
    environment = {
        **os.environ,
        "PYTHONPATH": SOURCE,
        "ROCKETSTORE_KERNELS": "fast",
    }
    done = subprocess.run(
        [sys.executable, "-c", "import rocketstore"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "must be 'native' or 'reference'" in done.stderr
