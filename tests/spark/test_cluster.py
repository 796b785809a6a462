"""The core of the suite where workers are processes of their own, and through Spark Connect."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import random_stores
import rocketstore
from message_table import scanned
from rocketstore.arrow.columns import resolve

pytestmark = pytest.mark.xdist_group("spark")

PROGRAM = Path(__file__).with_name("core_program.py")
ROWS = 10_000


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", ["cluster", "connect"])
def test_the_core(mode: str, tmp_path: Path) -> None:
    root = tmp_path / "store"
    random_stores.make(root, ROWS, segment_nbytes=1 << 20)
    expected = scanned(root, resolve("core"))
    with pa.ipc.new_file(tmp_path / "expected.arrow", expected.schema) as file:
        file.write_table(expected)
    paths = [str(Path(rocketstore.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, PROGRAM, mode, root, tmp_path / "expected.arrow", tmp_path],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=540,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found.pop("executors", 2) == 2
    assert found == {
        "source": True,
        "scan": True,
        "topics": [f"Topic{letter}" for letter in "ABCD"],
        "sql": pc.sum(pc.equal(expected["tags"], "red")).as_py(),
        "told": True,
        "written": pc.sum(pc.equal(expected["topic"], "TopicC")).as_py(),
    }
