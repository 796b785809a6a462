"""What a job reads: its checks, and what they say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from golden import golden_stores
from rocketstore.spark.jobs.stats import stats_table
from rocketstore.spark.reading.selection import Selection, plain, words


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"on_corruption": "stopp"}, r"'stopp': did you mean 'stop'\? it must be one of fail"),
        ({"on_corruption": None}, "on_corruption is None: it must be one of fail, skip, stop"),
        ({"on_corruption": 3}, "on_corruption is 3"),
        ({"split_bytes": 0}, "split_bytes is 0; it must be 1 or more"),
        ({"begin": 6, "end": 5}, "begin 6 is after end 5"),
        ({"start": 6, "stop": 5}, "start 6 is after stop 5"),
        ({"min_partitions": 0}, "min_partitions is 0; it must be 1 or more"),
    ],
)
def test_wrong_values_are_refused(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Selection(**given)


@pytest.mark.parametrize("name", ["begin", "end", "start", "stop"])
def test_bounds_are_refused_before_any_task_runs(name: str) -> None:
    with pytest.raises(TypeError, match=f"{name} must be int or None, not str"):
        Selection(**{name: "2026-01-01"})  # type: ignore[arg-type]


def test_words_are_one_or_several_texts() -> None:
    assert words(None, "tags") is None
    assert words("A", "tags") == ("A",)
    assert words((word for word in "AB"), "tags") == ("A", "B")
    for wrong in ([b"A"], [None], [1]):
        with pytest.raises(TypeError, match="tags must be str"):
            words(wrong, "tags")  # type: ignore[arg-type]


def test_options_are_plain_values() -> None:
    assert plain(None) is None
    assert plain({}) is None
    assert plain({"anon": True}) == {"anon": True}


def test_the_plan_covers_the_selected_range(tmp_path: Path) -> None:
    root = golden_stores.unpack("plain-5.3.3", tmp_path)
    whole = Selection(split_bytes=10_000)
    log = whole.list_log(root)
    splits = whole.plan(log)
    assert len(splits) > 2
    start = splits[1].base_offset + splits[1].start
    rest = Selection(split_bytes=10_000, start=start).plan(log)
    assert sum(split.nbytes for split in rest) < sum(split.nbytes for split in splits)


def test_statistics_take_no_filters(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="topics"):
        stats_table(tmp_path, topics=("A",))  # type: ignore[call-arg]
