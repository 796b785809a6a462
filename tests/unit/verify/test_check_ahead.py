"""Reading ahead on a thread: order, errors, closing; and the same report for any number of jobs."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from golden.golden_stores import NAMES, unpack
from rocketstore import MessageStoreConfig
from rocketstore.diagnosis.examination import doctor
from rocketstore.store.verifying import verify_files
from rocketstore.verify.check import ahead


def numbers(stop: int, threads: set[str]) -> Iterator[int]:
    for number in range(stop):
        threads.add(threading.current_thread().name)
        yield number


def test_items_keep_their_order_and_come_from_another_thread() -> None:
    threads: set[str] = set()
    assert list(ahead(numbers(100, threads))) == list(range(100))
    assert len(threads) == 1
    assert threading.current_thread().name not in threads


def test_an_error_comes_after_the_items_before_it() -> None:
    def failing() -> Iterator[int]:
        yield 1
        yield 2
        raise OSError("the disk failed")

    items = ahead(failing())
    assert [next(items), next(items)] == [1, 2]
    with pytest.raises(OSError, match="the disk failed"):
        next(items)


def test_few_items_are_prepared() -> None:
    taken: set[str] = set()
    made = []

    def counted() -> Iterator[int]:
        for number in numbers(1000, taken):
            made.append(number)
            yield number

    with contextlib.closing(ahead(counted())) as items:
        assert next(items) == 0
    assert len(made) <= 4


def report_of(store: Path, jobs: int) -> dict[str, Any]:
    found = dataclasses.asdict(verify_files(store, MessageStoreConfig(), jobs=jobs))
    del found["duration_s"]
    return found


@pytest.mark.parametrize("name", NAMES)
def test_verify_reports_the_same_for_any_jobs(name: str, tmp_path: Path) -> None:
    store = unpack(name, tmp_path)
    assert report_of(store, 1) == report_of(store, 2) == report_of(store, 7)


def verdict_of(store: Path, jobs: int) -> dict[str, Any]:
    found = doctor(store, jobs=jobs).to_json()
    for name in ("durationSeconds", "takenAt"):
        found.pop(name, None)
    return found


@pytest.mark.parametrize(
    ("file", "position", "content"),
    [
        ("commitlog/00000000000000000000", 700, bytes(300)),
        ("commitlog/00000000000000000000", 100, b"\xff" * 20),
        ("consumequeue/T/0/00000000000000000000", 20, bytes(40)),
    ],
)
def test_damage_is_found_the_same_for_any_jobs(
    tmp_path: Path, file: str, position: int, content: bytes
) -> None:
    store = unpack("plain-5.3.3", tmp_path)
    with open(store / file, "r+b") as changed:
        changed.seek(position)
        changed.write(content)
    one, two = report_of(store, 1), report_of(store, 2)
    assert one == two
    assert one["findings"]
    assert verdict_of(store, 1) == verdict_of(store, 2)


def test_jobs_below_one_are_refused(tmp_path: Path) -> None:
    store = unpack("plain-5.3.3", tmp_path)
    with pytest.raises(ValueError, match="jobs is 0"):
        rocketstore.doctor(store, jobs=0)
    with pytest.raises(ValueError, match="jobs is -1"):
        verify_files(store, MessageStoreConfig(), jobs=-1)
