"""A log's file whose name lies far from all others: no call counts its way up to there."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import rocketstore
from rocketstore.errors import MappedFileError, RocketStoreError
from rocketstore.formats import offset_to_file_name
from rocketstore.survey.segment_size import _divisors

SIZE = 65536
FAR = [SIZE * 5000, 2**47, 2**62, 2**63 - 2**31]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with rocketstore.open(tmp_path / "s", "x", mapped_file_size_commit_log=SIZE) as store:
        for number in range(300):
            assert store.put("T", b"x" * 300, 0, "A", f"k{number}").ok
    return tmp_path / "s"


@pytest.mark.parametrize("start", FAR)
def test_salvage_does_not_fill_what_no_log_lost(root: Path, start: int) -> None:
    far = root / "commitlog" / offset_to_file_name(start)
    far.write_bytes(bytes(SIZE))
    before = sorted(path.name for path in root.rglob("*"))
    with pytest.raises(
        MappedFileError, match=rf"{far} begins \d+ segments after the previous file"
    ):
        rocketstore.salvage(root)
    assert sorted(path.name for path in root.rglob("*")) == before
    with rocketstore.open(root) as store:
        assert sum(1 for _ in store.scan(on_corruption="skip")) == 300
        damaged = [(one.path, one.position) for one in store.recovery_report.damaged]
        assert len(damaged) == len(set(damaged)) < 200


@pytest.mark.parametrize("start", FAR)
def test_a_copy_under_a_far_name_bears_a_wrong_name(root: Path, start: int) -> None:
    log = root / "commitlog"
    far = log / offset_to_file_name(start)
    shutil.copy(log / offset_to_file_name(0), far)
    with pytest.raises(RocketStoreError, match=f"{far}.*wrong name"):
        rocketstore.salvage(root)


@pytest.mark.parametrize("start", [*FAR, 9_000_000_000_000_000_006, 6_469_693_230_000_000_000])
def test_the_size_of_a_lone_short_segment(root: Path, start: int) -> None:
    """Its divisors were counted one by one, up to a thousand million."""
    log = root / "commitlog"
    for path in sorted(log.iterdir())[1:]:
        path.unlink()
    (root / "rocketstore.state").unlink()
    only = log / offset_to_file_name(start)
    (log / offset_to_file_name(0)).rename(only)
    os.truncate(only, 5001)
    with pytest.raises(RocketStoreError, match=str(only)):
        rocketstore.open(root, "r+")


@pytest.mark.parametrize("start", [2**63 - 1, 2**63 - SIZE])
def test_a_name_after_which_no_segment_ends(root: Path, start: int) -> None:
    odd = root / "commitlog" / offset_to_file_name(start)
    shutil.copy(root / "commitlog" / offset_to_file_name(0), odd)
    with pytest.raises(RocketStoreError, match=str(odd)):
        rocketstore.salvage(root)
    with rocketstore.open(root, "r+") as store:
        assert store.recovery_report.skipped == [str(odd)]
        assert store.put("T", b"more").ok
        assert sum(1 for _ in store.scan()) == 301
    assert odd.read_bytes() == (root / "commitlog" / offset_to_file_name(0)).read_bytes()


@pytest.mark.parametrize("number", [1, 2, 97, 1 << 16, 65537, 65536 * 1009, 223_092_870, 999_999])
def test_divisors(number: int) -> None:
    every = {one for one in range(1, number + 1) if number % one == 0} if number < 1 << 20 else None
    found = _divisors(number, 2**31 - 1)
    assert all(number % one == 0 for one in found)
    assert every is None or found == every
    assert {1, number} <= found
    assert all(one <= 1000 for one in _divisors(number, 1000))
