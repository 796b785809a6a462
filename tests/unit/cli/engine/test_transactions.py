"""``rocketstore transactions``: undecided and decided ones, and deciding one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import rocketstore
from support.command_line import lines, run

NOW = 1_700_000_000_000
OPTIONS: dict[str, Any] = {"mapped_file_size_commit_log": 1 << 20, "broker_version": "5.3.3"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with rocketstore.open(tmp_path, "a", clock=lambda: NOW, **OPTIONS) as store:
        for number, group in enumerate("abab"):
            store.begin("Orders", b"x", group=group, unique_key=f"key-{number}", queue_id=number)
        store.transaction("key-0").commit()
        store.transaction("key-3").rollback()
    return tmp_path


def ids(*arguments: Any, code: int = 0) -> list[str]:
    answer = lines(run("transactions", *arguments, "--format", "ndjson", code=code))
    return [one["transactionId"] for one in answer]


def test_lists(root: Path) -> None:
    assert ids(root, code=1) == ["key-1", "key-2"]
    assert ids(root, "--state", "all", code=1) == ["key-0", "key-1", "key-2", "key-3"]
    assert ids(root, "--state", "commit") == ["key-0"]
    assert ids(root, "--state", "rollback") == ["key-3"]
    assert ids(root, "--state", "discarded") == []
    assert ids(root, "--group", "a", code=1) == ["key-2"]
    (one,) = lines(run("transactions", root, "-s", "commit", "-f", "ndjson"))
    assert (one["state"], one["group"], one["topic"], one["queueId"]) == (
        *("COMMIT", "a", "Orders", 0),
    )
    assert one["bornTimestamp"] == NOW
    with rocketstore.open(root) as store:
        message = store.look_message_by_offset(one["committedOffset"])
    assert message is not None
    assert message.unique_key == "key-0"


def test_old_ones_are_findings(root: Path) -> None:
    done = run("transactions", root, "--format", "table", code=1)
    assert "2 transactions undecided for more than 7 m 36 s" in done.stderr
    assert "d " in done.stdout
    run("transactions", root, "--max-age", "500000d")
    run("transactions", root, "--max-age", "never", code=2)
    assert "no such" in run("transactions", root, "--state", "discarded").stderr


def test_decides(root: Path) -> None:
    (one,) = lines(run("transactions", root, "--commit", "key-1", "--format", "ndjson"))
    assert (one["transactionId"], one["state"]) == ("key-1", "COMMIT")
    again = lines(run("transactions", root, "--commit", "key-1", "--format", "ndjson"))
    assert again[0]["committedOffset"] == one["committedOffset"]
    refused = run("transactions", root, "--rollback", "key-1", code=1)
    assert "decided before: COMMIT" in refused.stderr
    with rocketstore.open(root) as store:
        (left,) = store.transactions()
    shown = run("transactions", root, "--rollback", left.offset, "--format", "table").stdout
    assert shown == "key-2 is rolled back\n"
    assert ids(root) == []
    assert "no half message" in run("transactions", root, "--commit", "none", code=1).stderr
    run("transactions", root, "--commit", "a", "--rollback", "b", code=2)
    run("transactions", root / "none", code=3)


def test_a_unique_key_of_digits(tmp_path: Path) -> None:
    """It may look like a log offset, of another half message or of none."""
    with rocketstore.open(tmp_path, "a", clock=lambda: NOW, **OPTIONS) as store:
        first = store.begin("Orders", b"1", group="g", unique_key="20261128")
        second = store.begin("Orders", b"2", group="g", unique_key="9" * 30)
        store.begin("Orders", b"3", group="g", unique_key=str(second.offset))
        assert first.offset == 0
    for reference in ("20261128", "9" * 30):
        (one,) = lines(run("transactions", tmp_path, "--commit", reference, "-f", "ndjson"))
        assert (one["transactionId"], one["state"]) == (reference, "COMMIT")
    again = lines(run("transactions", tmp_path, "--commit", str(second.offset), "-f", "ndjson"))
    assert again[0]["transactionId"] == "9" * 30  # the log offset comes first
    assert ids(tmp_path, code=1) == [str(second.offset)]


@pytest.mark.parametrize("name", ["commit", "rollback"])
def test_what_the_store_refuses_is_no_success(name: str, root: Path, tmp_path: Path) -> None:
    config = tmp_path / "broker.conf"
    config.write_text("brokerRole=SLAVE\n")
    done = run("transactions", root, f"--{name}", "key-1", "--config", config, code=1)
    assert "refused" in done.stderr
    assert done.stdout == ""
    assert ids(root, code=1) == ["key-1", "key-2"]


@pytest.mark.parametrize("name", ["commit", "rollback"])
def test_a_half_message_that_cannot_be_decided(name: str, tmp_path: Path) -> None:
    with rocketstore.open(tmp_path, "a", **OPTIONS) as store:
        store.put("RMQ_SYS_TRANS_HALF_TOPIC", b"x", unique_key="bad", properties={"PGROUP": "g"})
    done = run("transactions", tmp_path, f"--{name}", "bad", code=int(name == "commit"))
    assert ("names no topic and queue" in done.stderr) == (name == "commit")
