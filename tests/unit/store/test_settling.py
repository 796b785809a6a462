"""``verify`` beside a writer that makes, fills and rolls files of every kind.

It reported units and index files that the writer was just making: queues were listed one after the
other while dispatch went on, and of two numbers that change together one was read a moment later.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import rocketstore
from rocketstore.config import MessageStoreConfig
from rocketstore.files import durable as durable_file
from rocketstore.files import mapped_file
from rocketstore.store.verifying import verify_files
from rocketstore.verify.report import VerifyReport

SIZES = {
    "mapped_file_size_commit_log": 4096,
    "mapped_file_size_consume_queue": 60,
    "max_hash_slot_num": 3,
    "max_index_num": 8,
    "broker_version": "5.3.3",
    "flush_disk_type": "ASYNC_FLUSH",
}
KINDS = {
    "plain": {},
    "ext": {"enable_consume_queue_ext": True, "mapped_file_size_consume_queue_ext": 1024},
    "light": {"enable_lmq": True, "enable_multi_dispatch": True},
    "batch": {
        "topic_attributes": {"T1": {"queue.type": "BatchCQ"}},
        "mapper_file_size_batch_consume_queue": 92,
    },
}


def check(root: Path) -> VerifyReport:
    return verify_files(root, MessageStoreConfig())


def put_until(store: rocketstore.DefaultMessageStore, stop: threading.Event, light: bool) -> None:
    properties = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b"} if light else None
    for number in itertools.count():
        if stop.is_set():
            return
        key = f"k{number} j{number}"
        put = store.put(f"T{number % 3}", b"x" * 90, number % 2, "tag", key, properties=properties)
        assert put.ok
        time.sleep(0.004)


@pytest.fixture
def making(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files appear whole, or empty first as a broker makes them."""

    def make_in_place(path: Path, nbytes: int, allocated: int, root: Path) -> tuple[int, int]:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        time.sleep(0.005)
        os.ftruncate(fd, nbytes)
        about = os.fstat(fd)
        os.close(fd)
        return about.st_dev, about.st_ino

    if request.param == "in place":
        assert mapped_file.create_sized_file is durable_file.create_sized_file
        monkeypatch.setattr(mapped_file, "create_sized_file", make_in_place)


@pytest.mark.parametrize(
    ("kind", "making"),
    [(kind, "whole") for kind in KINDS] + [("plain", "in place"), ("ext", "in place")],
    indirect=["making"],
)
@pytest.mark.usefixtures("making")
def test_nothing_is_found_while_files_of_a_kind_are_made(tmp_path: Path, kind: str) -> None:
    with rocketstore.open(tmp_path / "s", "x", **SIZES, **KINDS[kind]) as store:
        stop = threading.Event()
        writer = threading.Thread(target=put_until, args=(store, stop, kind == "light"))
        writer.start()
        try:
            for _ in range(4):
                assert check(tmp_path / "s").findings == []
                with rocketstore.open(tmp_path / "s") as beside:
                    report = beside.recovery_report
                    assert (report.damaged, report.skipped, report.gaps) == ([], [], [])
                    assert not [note for note in report.notes if " bytes" in note]
        finally:
            stop.set()
            writer.join()
        store.wait_dispatched()
    assert check(tmp_path / "s").findings == []


def new_index_file(root: Path) -> Path:
    return root / "index" / "20991231235959999"


def new_queue_file(root: Path) -> Path:
    return root / "consumequeue" / "T" / "0" / f"{60 * 20:020}"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[rocketstore.DefaultMessageStore]:
    with rocketstore.open(tmp_path / "s", "x", **SIZES) as store:
        for number in range(20):
            store.put("T", b"x", 0, None, f"k{number}")
        store.wait_dispatched()
        yield store


@pytest.mark.parametrize("place", [new_index_file, new_queue_file])
@pytest.mark.parametrize("nbytes", [0, 20])
@pytest.mark.parametrize("held", [True, False])
def test_what_stays_in_the_making_is_found(
    tmp_path: Path, store: rocketstore.DefaultMessageStore, place: Callable[[Path], Path],
    nbytes: int, held: bool,
) -> None:  # fmt: skip
    """A second look does not make a broken file a whole one, beside a writer or without."""
    root = tmp_path / "s"
    if not held:
        store.close()
    place(root).write_bytes(bytes(nbytes))
    report = check(root)
    assert [one.path for one in report.findings] == [str(place(root))]
    place(root).unlink()
    assert check(root).findings == []


def test_damage_of_old_is_looked_at_once(
    tmp_path: Path, store: rocketstore.DefaultMessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_queue_file(tmp_path / "s").write_bytes(b"")
    os.utime(new_queue_file(tmp_path / "s"), (1, 1))
    monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("it was looked at again"))
    assert check(tmp_path / "s").finding_counts == {"queue-file": 1}
