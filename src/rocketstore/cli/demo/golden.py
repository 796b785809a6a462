"""Ask a store written by RocketMQ the questions whose answers were recorded with it."""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import json
import lzma
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rocketstore.errors import DecodeError
from rocketstore.filter import TagFilter
from rocketstore.message import StoredMessage
from rocketstore.store.default_message_store import DefaultMessageStore


def unpack(golden: Path, directory: Path) -> Path:
    """Unpack ``store.tar.xz`` of a golden folder below ``directory``; return the store's root."""
    with tarfile.open(golden / "store.tar.xz", "r:xz") as archive:
        # Python before 3.11.4 does not support filters.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(directory)
    return directory / "store"


def questions(golden: Path) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield (question, RocketMQ's answer)."""
    with lzma.open(golden / "expected.ndjson.xz", "rt", encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            yield row["ask"], row["answer"]


def is_answered(store: DefaultMessageStore, ask: dict[str, Any], expected: dict[str, Any]) -> bool:
    """Return whether ``store`` answers like RocketMQ; timings are not compared."""
    answer = _ANSWERS.get(ask["op"])
    if answer is None:
        raise DecodeError(
            f"unknown recorded question {ask['op']!r}; a newer rocketstore may know it"
        )
    wanted = {name: value for name, value in expected.items() if not name.endswith("Ms")}
    if "queues" in wanted:
        wanted["queues"] = sorted(wanted["queues"], key=lambda row: (row["topic"], row["queueId"]))
    return {"op": ask["op"], **answer(store, ask)} == wanted


def _short(message: StoredMessage) -> dict[str, Any]:
    return {
        "size": message.store_size,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "offset": message.physical_offset,
        "sha1": hashlib.sha1(bytes(message.raw)).hexdigest()[:16],
    }


def _java_host(host: str | None) -> str:
    """Format a host like Java, with every group of an IPv6 address and without brackets."""
    assert host is not None, "a stored record has both hosts"
    if not host.startswith("["):
        return host
    address, port = host[1:].rsplit("]:", 1)
    groups = ipaddress.IPv6Address(address).exploded.split(":")
    return ":".join(f"{int(group, 16):x}" for group in groups) + f":{port}"


def _bounds(store: DefaultMessageStore, _: dict[str, Any]) -> dict[str, Any]:
    return {
        "minPhy": store.min_physical_offset,
        "maxPhy": store.max_physical_offset,
        "behind": store.dispatch_behind_nbytes,
    }


def _open(store: DefaultMessageStore, ask: dict[str, Any]) -> dict[str, Any]:
    return {"load": True, **_bounds(store, ask)}


def _dump_all(store: DefaultMessageStore, ask: dict[str, Any]) -> dict[str, Any]:
    rows = [
        _dump(store, topic, queue_id)
        for topic in store.topics()
        for queue_id in store.queues(topic)
    ]
    return {"queues": rows, **_bounds(store, ask)}


def _dump(store: DefaultMessageStore, topic: str, queue_id: int) -> dict[str, Any]:
    first = store.min_offset_in_queue(topic, queue_id)
    end = store.max_offset_in_queue(topic, queue_id)
    messages: list[dict[str, Any]] = []
    offset = first
    while offset < end:
        result = store.get_message("demo", topic, queue_id, offset)
        messages += map(_short, result.messages)
        if result.next_begin_offset <= offset:
            break
        offset = result.next_begin_offset
    return {"topic": topic, "queueId": queue_id, "min": first, "max": end, "messages": messages}


def _get(store: DefaultMessageStore, ask: dict[str, Any]) -> dict[str, Any]:
    tags = TagFilter(ask["tags"]) if "tags" in ask else None
    result = store.get_message(
        "demo", ask["topic"], ask["queueId"], ask["offset"], ask.get("max", 32), filter=tags
    )
    return {
        "status": result.status.name,
        "next": result.next_begin_offset,
        "min": result.min_offset,
        "max": result.max_offset,
        "messages": [_short(message) for message in result.messages],
    }


def _query(store: DefaultMessageStore, ask: dict[str, Any]) -> dict[str, Any]:
    times = {name: ask[name] for name in ("begin", "end") if name in ask}
    result = store.query_message(ask["topic"], ask["key"], ask.get("max", 32), **times)
    return {
        "lastTs": result.index_last_update_timestamp,
        "lastOffset": result.index_last_update_physical_offset,
        "messages": [_short(message) for message in result.messages],
    }


def _by_time(store: DefaultMessageStore, ask: dict[str, Any]) -> dict[str, Any]:
    return {"offset": store.get_offset_in_queue_by_time(ask["topic"], ask["queueId"], ask["ts"])}


def _look(store: DefaultMessageStore, ask: dict[str, Any]) -> dict[str, Any]:
    message = store.look_message_by_offset(ask["offset"])
    if message is None:
        return {"message": None}
    return {
        "message": {
            "topic": message.topic,
            "queueId": message.queue_id,
            "queueOffset": message.queue_offset,
            "offset": message.physical_offset,
            "size": message.store_size,
            "flag": message.flag,
            "sysFlag": message.sys_flag,
            "bornTs": message.born_timestamp,
            "storeTs": message.store_timestamp,
            "bornHost": _java_host(message.born_host),
            "storeHost": _java_host(message.store_host),
            "reconsume": message.reconsume_times,
            "prepared": message.prepared_transaction_offset,
            "bodyCrc": message.body_crc,
            "body": base64.b64encode(message.body).decode("ascii"),
            "props": message.properties,
        }
    }


_ANSWERS = {
    "open": _open,
    "wait": _bounds,
    "info": _bounds,
    "dumpall": _dump_all,
    "get": _get,
    "query": _query,
    "bytime": _by_time,
    "look": _look,
}
