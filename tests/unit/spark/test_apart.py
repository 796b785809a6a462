"""A job never writes into the store that it reads.

``spark replay STORE STORE`` appended a store's messages to itself, and each further run doubled
them.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import rocketstore
from rocketstore.spark.base.apart import check_apart
from support.command_line import make_store, run


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = make_store(tmp_path / "store")
    (tmp_path / "link").symlink_to(root)
    (tmp_path / "loglink").symlink_to(root / "commitlog")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "commitlog").symlink_to(root / "commitlog")
    return root


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("store", "store"),
        ("store", "store/"),
        ("store", "link"),
        ("link", "store"),
        ("store", "other/../store"),
        ("store", "store/commitlog"),
        ("store", "store/new"),
        ("store", "link/deep/new"),
        ("store/commitlog", "store"),
        ("store/commitlog", "store/new"),
        ("loglink", "store"),
        ("store", "other"),
        ("other", "store"),
        ("store", "file://{tmp}/store"),
        ("file://{tmp}/store", "store"),
    ],
)
def test_the_store_that_is_read_is_no_target(
    root: Path, tmp_path: Path, source: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source, target = source.replace("{tmp}", str(tmp_path)), target.replace("{tmp}", str(tmp_path))
    with pytest.raises(rocketstore.ConfigError, match="the source store"):
        check_apart(source, target)
    before = sorted(os.walk(root))
    for command, others in (
        ("replay", ()),
        ("compact", ("--topic", "TopicA")),
        ("export", ()),
        ("load", ("--from", "rocketstore")),
    ):
        reported = run("spark", command, source, target, *others, code=2).stderr
        assert "the source store" in reported
    assert sorted(os.walk(root)) == before


def test_other_places_are_fine(root: Path, tmp_path: Path) -> None:
    make_store(tmp_path / "second")
    for target in ("second", "new", "deep/er", "store2", "s3://bucket/store"):
        check_apart(root, target if "://" in target else tmp_path / target)
    check_apart("s3://bucket/store", root)
