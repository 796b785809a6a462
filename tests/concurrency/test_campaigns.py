"""Short forms of ``make torn-reads`` and ``make soak``."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import rocketstore

HERE = Path(__file__).parent


def run(program: str, *arguments: object) -> dict[str, Any]:
    """Run a campaign in processes of its own; its seed is printed when it fails."""
    source = os.pathsep.join([str(Path(rocketstore.__file__).parents[1]), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, str(HERE / program), *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": source},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, f"{done.stderr}\n{done.stdout}"
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_nothing_torn_is_read_beside_a_writer_that_rolls_and_deletes() -> None:
    result = run("torn_reads.py", "--reads", 120_000, "--seed", random.randrange(1 << 30))
    assert result["total"] >= 120_000
    assert set(result["reads"]) == {"tail", "get_message", "scan", "look_message_by_offset"}
    assert result["deleted_segments"] > 12
    assert result["events_seen"]["gone"] > 0


def test_memory_descriptors_and_mappings_are_bounded_under_load(tmp_path: Path) -> None:
    seed = random.randrange(1 << 30)
    result = run("soak.py", "--minutes", 0.35, "--seed", seed, "--out", tmp_path)
    figures = result["figures"]
    assert result["deleted_nbytes"] > 0
    assert figures["descriptors"]["most"] <= 40
    assert figures["mappings"]["most"] <= 200
    samples = json.loads((tmp_path / "soak.json").read_text())["samples"]
    assert len(samples) >= 5
