"""Puts into light queues and of inner batches, as four lines of RocketMQ answered and stored them.

``light-puts.ndjson.xz`` holds four scripts for each of 4.9.8, 5.1.4, 5.4.0 and 5.5.0 (there are
whole stores of 5.3.3): queues of any name, named twice, with both switches and with one; all
transaction types; topics that get no offsets; properties and bodies around the limits; CRCs over
whole records. With them stand the answers of the released stores and the SHA-256 of their logs.
"""

from __future__ import annotations

import base64
import hashlib
import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from support.appenders import Log, message
from support.kernel_bodies import Bodies

RECORDS = Path(__file__).with_name("light-puts.ndjson.xz")
with lzma.open(RECORDS, "rt", encoding="utf-8") as _lines:
    SCRIPTS: list[dict[str, Any]] = [json.loads(line) for line in _lines]


def is_on(script: dict[str, Any], name: str) -> bool:
    return bool(script["config"].get(name) == "true")


def message_of(ask: dict[str, Any]) -> Any:
    return message(
        ask["topic"],
        base64.b64decode(ask["body"]),
        queue_id=ask["queueId"],
        sys_flag=ask["sysFlag"],
        born_timestamp=ask["bornTs"],
        born_host=ask["bornHost"],
        properties=ask["props"],
    )


@pytest.mark.parametrize(
    "script", SCRIPTS, ids=lambda script: f"{script['rocketmq']}-{script['seed']}"
)
def test_recorded_puts_get_the_recorded_answers_and_bytes(
    kernels: Bodies, script: dict[str, Any]
) -> None:
    now = [0]
    log = Log(
        kernels,
        segment_nbytes=int(script["config"]["mappedFileSizeCommitLog"]),
        clock=lambda: now[0],
        broker_version=script["rocketmq"],
        store_host="10.9.8.7:10911",
        max_message_size=int(script["config"]["maxMessageSize"]),
        enable_lmq=is_on(script, "enableLmq"),
        enable_multi_dispatch=is_on(script, "enableMultiDispatch"),
        append_property_crc=is_on(script, "enabledAppendPropCRC"),
    )
    log.appender.set_batch_topics(script["topics"])
    for write in script["writes"]:
        expected = write["answer"]
        now[0] = expected.get("storeTs", now[0])
        result = log.appender.put_message(message_of(write["ask"]))
        assert result.status.name == expected["status"], write["ask"]
        append_status = None if result.append_status is None else result.append_status.name
        assert append_status == expected.get("append"), write["ask"]
        if result.appended:
            assert result.physical_offset == expected["offset"], write["ask"]
            assert result.nbytes == expected["bytes"]
            assert result.queue_offset == expected["queueOffset"]
            assert result.msg_id == expected["msgId"]
    assert log.appender.write_offset == script["log_end"]
    stored = log.bytes[: script["log_end"]]
    assert hashlib.sha256(stored).hexdigest() == script["log_sha256"]


def test_all_lines_are_there() -> None:
    versions = [script["rocketmq"] for script in SCRIPTS]
    assert sorted(set(versions)) == ["4.9.8", "5.1.4", "5.4.0", "5.5.0"]
    assert len(versions) == 16
