"""Every question put to the real RocketMQ about its stores gets the answer it gave."""

from __future__ import annotations

import base64
import hashlib
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from golden import golden_stores
from rocketstore import TagFilter
from support.directory import files_below

#: (store, topic, key): hits that RocketMQ 5.3.3 owes to the entry it doubles after a crash (D-4).
DOUBLED_KEYS = {("crash-5.3.3", "%RETRY%grp", "key-186")}


def in_list(message: rocketstore.StoredMessage) -> dict[str, Any]:
    """A message as the recorded lists have it."""
    return {
        "size": message.store_size,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "offset": message.physical_offset,
        "sha1": hashlib.sha1(bytes(message.raw)).hexdigest()[:16],
    }


def java_host(host: str) -> str:
    """A host as Java prints it: IPv6 groups without padding, none left out, no brackets."""
    if not host.startswith("["):
        return host
    import ipaddress

    address, port = host[1:].rsplit("]:", 1)
    groups = ipaddress.IPv6Address(address).exploded.split(":")
    return ":".join(f"{int(group, 16):x}" for group in groups) + f":{port}"


def decoded(message: rocketstore.StoredMessage) -> dict[str, Any]:
    """A message as ``look`` answers it."""
    return {
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "offset": message.physical_offset,
        "size": message.store_size,
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "bornTs": message.born_timestamp,
        "storeTs": message.store_timestamp,
        "bornHost": java_host(message.born_host),
        "storeHost": java_host(message.store_host),
        "reconsume": message.reconsume_times,
        "prepared": message.prepared_transaction_offset,
        "bodyCrc": message.body_crc,
        "body": base64.b64encode(message.body).decode(),
        "props": message.properties,
    }


class Respondent:
    """Answers recorded questions from an open store."""

    def __init__(
        self,
        store: rocketstore.DefaultMessageStore,
        filter_kind: Callable[[str], Any] = TagFilter,
    ) -> None:
        self.store = store
        self.filter_kind = filter_kind

    def answer(self, ask: dict[str, Any]) -> dict[str, Any]:
        return {"op": ask["op"], **getattr(self, ask["op"])(ask)}

    def open(self, ask: dict[str, Any]) -> dict[str, Any]:
        return {"load": True, **self.info(ask)}

    def wait(self, ask: dict[str, Any]) -> dict[str, Any]:
        return self.info(ask)

    def info(self, ask: dict[str, Any]) -> dict[str, Any]:
        store = self.store
        return {
            "minPhy": store.min_physical_offset,
            "maxPhy": store.max_physical_offset,
            "behind": store.dispatch_behind_nbytes,
        }

    def dumpall(self, ask: dict[str, Any]) -> dict[str, Any]:
        rows = []
        for topic in self.store.topics():
            for queue_id in self.store.queues(topic):
                first = self.store.min_offset_in_queue(topic, queue_id)
                end = self.store.max_offset_in_queue(topic, queue_id)
                messages: list[Any] = []
                offset = first
                while offset < end:
                    result = self.store.get_message("g", topic, queue_id, offset)
                    messages += map(in_list, result.messages)
                    assert result.next_begin_offset > offset
                    offset = result.next_begin_offset
                rows.append(
                    {
                        "topic": topic,
                        "queueId": queue_id,
                        "min": first,
                        "max": end,
                        "messages": messages,
                    }
                )
        return {"queues": rows, **self.info(ask)}

    def get(self, ask: dict[str, Any]) -> dict[str, Any]:
        tags = self.filter_kind(ask["tags"]) if "tags" in ask else None
        result = self.store.get_message(
            "g", ask["topic"], ask["queueId"], ask["offset"], ask.get("max", 32), filter=tags
        )
        return {
            "status": result.status.name,
            "next": result.next_begin_offset,
            "min": result.min_offset,
            "max": result.max_offset,
            "messages": [in_list(message) for message in result.messages],
        }

    def query(self, ask: dict[str, Any]) -> dict[str, Any]:
        times = {name: ask[name] for name in ("begin", "end") if name in ask}
        result = self.store.query_message(ask["topic"], ask["key"], ask.get("max", 32), **times)
        return {
            "lastTs": result.index_last_update_timestamp,
            "lastOffset": result.index_last_update_physical_offset,
            "messages": [in_list(message) for message in result.messages],
        }

    def bytime(self, ask: dict[str, Any]) -> dict[str, Any]:
        offset = self.store.get_offset_in_queue_by_time(ask["topic"], ask["queueId"], ask["ts"])
        return {"offset": offset}

    def look(self, ask: dict[str, Any]) -> dict[str, Any]:
        message = self.store.look_message_by_offset(ask["offset"])
        return {"message": None if message is None else decoded(message)}


class FilterInPython:
    """What ``TagFilter`` does, asked unit by unit."""

    def __init__(self, text: str) -> None:
        codes = TagFilter(text).tags_codes
        self.codes = (
            None if codes is None else {code for (code,) in struct.iter_unpack("=q", codes)}
        )

    def is_matched_by_consume_queue(self, tags_code: int | None, ext: Any) -> bool:
        return self.codes is None or tags_code is None or tags_code in self.codes

    def is_matched_by_commit_log(self, message: rocketstore.StoredMessage) -> bool:
        return True


def comparable(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer without Java's own timings, queues in one order."""
    kept = {name: value for name, value in answer.items() if not name.endswith("Ms")}
    if "queues" in kept:
        kept["queues"] = sorted(kept["queues"], key=lambda row: (row["topic"], row["queueId"]))
    return kept


def is_exempt(name: str, ask: dict[str, Any]) -> bool:
    if ask["op"] == "dumpall" and name.startswith("rocksdb-"):
        return True  # it listed queues in files, but there are no files
    return ask["op"] == "query" and (name, ask["topic"], ask["key"]) in DOUBLED_KEYS


def wrong_answers(store: rocketstore.DefaultMessageStore, name: str) -> tuple[int, list[str]]:
    """Ask everything; return how many were asked and what differed."""
    respondent, wrong, asked = Respondent(store), [], 0
    for step in golden_stores.questions(name):
        if is_exempt(name, step.ask):
            continue
        asked += 1
        expected, actual = comparable(step.answer), comparable(respondent.answer(step.ask))
        if expected != actual:
            wrong.append(f"{step.ask}\n  expected {expected}\n  actual   {actual}"[:1500])
    return asked, wrong


def assert_all_answers(root: Path, name: str, mode: str, **options: Any) -> None:
    with rocketstore.open(root, mode, **options) as store:
        asked, wrong = wrong_answers(store, name)
    assert asked > 300
    assert not wrong, f"{len(wrong)} of {asked} answers differ:\n" + "\n".join(wrong[:5])


@pytest.mark.parametrize("name", golden_stores.NAMES)
def test_recorded_questions_get_the_recorded_answers(name: str, tmp_path: Path) -> None:
    assert_all_answers(golden_stores.unpack(name, tmp_path), name, "r")


@pytest.mark.parametrize(
    "name", golden_stores.names("plain-4.9.8", "ext-", "lmq-", "inner-", "expire-", "rocksdb-")
)
def test_the_files_as_they_are_give_the_recorded_answers(name: str, tmp_path: Path) -> None:
    assert_all_answers(golden_stores.unpack(name, tmp_path), name, "r", derive="none")


@pytest.mark.parametrize("name", golden_stores.names("inner-", "rocksdb-"))
def test_the_log_alone_gives_the_recorded_answers(name: str, tmp_path: Path) -> None:
    root = golden_stores.unpack(name, tmp_path)
    shutil.rmtree(root / "batchconsumequeue", ignore_errors=True)
    if name.startswith("inner-"):
        shutil.rmtree(root / "consumequeue")
    options = golden_stores.geometry(name)
    assert_all_answers(
        root, name, "r", derive="full",
        mapped_file_size_consume_queue=options.consume_queue_nbytes,
        max_hash_slot_num=options.slots, max_index_num=options.entries,
    )  # fmt: skip


@pytest.mark.parametrize("name", golden_stores.names("inner-", "expire-", "crc-"))
def test_answers_stay_the_same_when_a_store_is_opened_for_writing(
    name: str, tmp_path: Path
) -> None:
    root = golden_stores.unpack(name, tmp_path)
    before = files_below(root)
    assert_all_answers(root, name, "r+")
    after = files_below(root)
    assert {file for file in before if after.get(file) != before[file]} <= {"checkpoint"}
    assert_all_answers(root, name, "r")


@pytest.mark.parametrize(
    "name", golden_stores.names("expire-", "ext-", "inner-", "plain-4.9.8", "plain-5.3.3")
)
def test_a_filter_in_python_gives_the_answers_of_tags(name: str, tmp_path: Path) -> None:
    with rocketstore.open(golden_stores.unpack(name, tmp_path)) as store:
        respondent, asked = Respondent(store, FilterInPython), 0
        for step in golden_stores.questions(name):
            if "tags" in step.ask:
                asked += 1
                assert comparable(respondent.answer(step.ask)) == comparable(step.answer)
    assert asked > 50
