"""Two or three damaged places in a store hide no whole record; see ``damage_campaign``."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from crash import damage_campaign
from crash.damage_campaign import Harm
from golden import golden_stores

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="stores are only read there")
# The second of two damaged places in one segment hid everything after it, and salvage truncated
# it: queue offsets that were missing because of the first looked like the gap of a stale tail.

PLACES = [
    ("plain-5.1.4", 24_576, 29_832),
    ("broker-5.5.0", 40_960, 47_406),
    ("ext-4.9.8", 49_152, 61_846),
]


@pytest.mark.parametrize("aborted", [False, True])
@pytest.mark.parametrize(("name", "first", "second"), PLACES)
def test_two_places_in_one_segment(
    name: str, first: int, second: int, aborted: bool, tmp_path: Path
) -> None:
    template = damage_campaign.read_template(name, golden_stores.unpack(name, tmp_path))
    root = tmp_path / "damaged"
    shutil.copytree(template.root, root)
    if aborted:
        (root / "abort").touch()
    harms = [Harm(first, bytes(4096)), Harm(second, bytes(64))]
    assert list(damage_campaign.faults(root, template, harms, mend=True)) == []


@pytest.mark.parametrize("seed", [1, 2])
def test_random_places(seed: int) -> None:
    counts, wrong = damage_campaign.run(30, seed, mend_one_in=5)
    assert wrong == []
    assert counts["stores"] == 30
