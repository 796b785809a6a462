"""Mode "r" while another process truncates or overwrites a torn end, after the reader's check."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import CorruptMessageError
from rocketstore.recovery.log_recovery import LogRecovery

SMALL: dict[str, Any] = {
    "mapped_file_size_commit_log": 65536,
    "max_hash_slot_num": 7,
    "max_index_num": 300,
}


def make_store(root: Path) -> list[int]:
    """Nine messages in three queues; returns their log offsets."""
    with rocketstore.open(root, "x", **SMALL) as writer:
        results = [writer.put("T", b"body", n % 3, "A", f"k{n}") for n in range(9)]
    return [result.physical_offset for result in results]


def zero_from(root: Path, start: int, stop: int) -> None:
    with open(root / "commitlog" / f"{0:020}", "r+b", buffering=0) as file:
        os.pwrite(file.fileno(), bytes(stop - start), start)


def test_an_end_that_is_truncated_while_the_directory_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening reads the topics of the last records a second time, for the order of their queues. If
    a writer had truncated these records since the check, it raised ``ValueError: no record lies
    at position``."""
    offsets = make_store(tmp_path / "s")
    resolve, left = LogRecovery._resolve, [1]

    def resolve_and_truncate(recovery: LogRecovery) -> int:
        end = resolve(recovery)
        if left[0] > 0:
            left[0] -= 1
            (tmp_path / "s" / "abort").touch()  # the writer has it open
            zero_from(tmp_path / "s", offsets[6], end)
        return end

    monkeypatch.setattr(LogRecovery, "_resolve", resolve_and_truncate)
    with rocketstore.open(tmp_path / "s") as reader:
        assert left == [0]
        assert [message.physical_offset for message in reader.scan()] == offsets[:6]
        assert reader.max_physical_offset == offsets[6]


def test_a_directory_that_changes_at_every_look_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The retries end: if a process overwrites the log forever, an error reports it."""
    root = tmp_path / "s"
    offsets = make_store(root)
    path = root / "commitlog" / f"{0:020}"
    content = path.read_bytes()
    resolve, walk, looks = LogRecovery._resolve, LogRecovery._walk, [0]

    def put_back_and_walk(recovery: LogRecovery) -> bool:
        path.write_bytes(content)
        return walk(recovery)

    def resolve_and_truncate(recovery: LogRecovery) -> int:
        looks[0] += 1
        end = resolve(recovery)
        zero_from(root, offsets[0], end)
        return end

    monkeypatch.setattr(LogRecovery, "_walk", put_back_and_walk)
    monkeypatch.setattr(LogRecovery, "_resolve", resolve_and_truncate)
    with pytest.raises(CorruptMessageError, match="overwritten by another process") as caught:
        rocketstore.open(root)
    assert (caught.value.path, caught.value.position) == (str(path), offsets[0])
    assert looks == [10]


@pytest.mark.parametrize("policy", ["fail", "skip", "stop"])
def test_a_record_that_goes_under_a_scan(tmp_path: Path, policy: str) -> None:
    """A scan checks a thousand records at a time; one that was overwritten before its turn raised
    ``ValueError``, whatever ``on_corruption`` said."""
    offsets = make_store(tmp_path / "s")
    with rocketstore.open(tmp_path / "s") as reader:
        scan = reader.scan(on_corruption=policy)
        found = [next(scan).physical_offset]
        zero_from(tmp_path / "s", offsets[3], offsets[4])
        if policy == "fail":
            with pytest.raises(CorruptMessageError, match=f"log offset {offsets[3]} ") as caught:
                found.extend(message.physical_offset for message in scan)
            assert caught.value.position == offsets[3]
        else:
            found += [message.physical_offset for message in scan]
    rest = offsets[4:] if policy == "skip" else []
    assert found == offsets[:3] + rest


def test_a_message_that_goes_before_it_is_taken_from_an_answer(tmp_path: Path) -> None:
    offsets = make_store(tmp_path / "s")
    with rocketstore.open(tmp_path / "s") as reader:
        messages = reader.get_message("g", "T", 0, 0).messages
        zero_from(tmp_path / "s", offsets[3], offsets[4])
        assert messages[0].physical_offset == offsets[0]
        with pytest.raises(CorruptMessageError, match=f"log offset {offsets[3]} "):
            messages[1]
        assert messages[2].physical_offset == offsets[6]


def test_a_record_that_goes_between_its_check_and_its_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is as if the look had come later: there is nothing."""
    offsets = make_store(tmp_path / "s")
    with rocketstore.open(tmp_path / "s") as reader:
        log = reader.reader.log
        check, left = log._check_in, [1]

        def check_and_truncate(*arguments: Any) -> Any:
            result = check(*arguments)
            if left[0] > 0:
                left[0] -= 1
                zero_from(tmp_path / "s", offsets[3], offsets[4])
            return result

        monkeypatch.setattr(log, "_check_in", check_and_truncate)
        log.windows.clear()  # else one kernel call does both
        assert reader.look_message_by_offset(offsets[3]) is None
        assert left == [0]
        assert [m.physical_offset for m in reader.find(topic="T", key="k4")] == [offsets[4]]
