"""What notebooks show: tables in which data from a store is text and nothing else."""

from __future__ import annotations

import pickle
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rocketstore
from golden import golden_stores
from rocketstore.display import html as repr_html
from support.kernel_bodies import Bodies

HOSTILE = "<script>alert(1)</script>\"' onload=x &amp; \x1b[31m \u202e"
ALLOWED = {"div", "strong", "table", "thead", "tbody", "tr", "th", "td"}


class Reader(HTMLParser):
    """Collects tags, attributes and text."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)

    def handle_data(self, data: str) -> None:
        self.text += data


def check(text: str) -> str:
    reader = Reader(text)
    assert reader.tags <= ALLOWED
    assert reader.attributes <= {"style"}
    assert not [c for c in reader.text if (ord(c) < 32 and c not in "\n\t") or c == "\u202e"]
    return reader.text


def test_h08_a_message_with_html_in_every_part(kernels: Bodies) -> None:
    message = kernels.message.Message(
        HOSTILE, HOSTILE.encode(), properties={HOSTILE: HOSTILE, "KEYS": "<b>k</b>"}
    )
    shown = check(message._repr_html_())
    assert shown.count("<script>alert(1)</script>\"' onload=x &amp; \\x1b[31m \\u202e") == 4
    assert "<b>k</b>" in shown


def test_h08_a_stored_message_with_html_in_topic_key_and_body(kernels: Bodies) -> None:
    """No store lets such a topic in; a record that others wrote may carry it."""
    record = kernels.message.encode_record(
        HOSTILE, HOSTILE.encode(), 1, 2, 0, 0, 0, 3, "1.2.3.4:5", 6, "1.2.3.4:5", 0, 0,
        f"KEYS\x01{HOSTILE}\x02".encode(),
    )  # fmt: skip
    message = kernels.message.StoredMessage(record, 0, 0, 65536)
    assert check(message._repr_html_()).count("<script>alert(1)</script>") == 3


@pytest.fixture(scope="module")
def store_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("html") / "<i>store</i>"
    with rocketstore.open(
        root, "x", mapped_file_size_commit_log=65536, mapped_file_size_consume_queue=400,
        max_hash_slot_num=20, max_index_num=60, clock=lambda: 1_700_000_000_123,
    ) as store:  # fmt: skip
        for number in range(45):
            store.put("TopicA", HOSTILE.encode(), 0, f"<b>{number}</b>", "<u>key</u>")
        store.put("TopicB", b"\xff" * 300)
    return root


def test_h08_a_store_and_its_messages(store_path: Path) -> None:
    with rocketstore.open(store_path) as store:
        shown = check(store._repr_html_())
        assert "<i>store</i>" in shown
        assert "TopicA" in shown
        assert "2 topics" in shown
        messages = store.get_message("g", "TopicA", 0, 0).messages
        reported = check(messages[7]._repr_html_())
        for part in (
            "<b>7</b>",
            "<u>key</u>",
            "alert(1)",
            "2023-11-14 22:13:20.123 UTC",
            "StoredMess",
        ):
            assert part in reported
        binary = check(store.get_message("g", "TopicB", 0, 0).messages[0]._repr_html_())
        assert "0x ff ff" in binary
        assert "(300 bytes)" in binary
        assert check(messages[7].detach()._repr_html_()) == reported
        assert check(pickle.loads(pickle.dumps(messages[7]))._repr_html_()) == reported
    assert "closed" in check(store._repr_html_())


def test_reprs(store_path: Path) -> None:
    with rocketstore.open(store_path) as store:
        end = store.max_physical_offset
        assert repr(store) == (
            f"<DefaultMessageStore {str(store_path)!r} mode 'r', RocketMQ {store.broker_version}, "
            f"log offsets 0 to {end}>"
        )
        message = store.get_message("g", "TopicA", 0, 3).messages[0]
        assert repr(message).startswith("StoredMessage('TopicA', <")
        assert "queue_offset=3" in repr(message)
    assert repr(store) == f"<DefaultMessageStore {str(store_path)!r} closed>"


def test_queue_views(store_path: Path) -> None:
    with rocketstore.open(store_path) as store:
        view = store.queue_view("TopicA", 0)
        shown = check(view._repr_html_() or "")
        assert "Queue 0 of TopicA, 45 units" in shown
        assert "…" in shown
        assert "queue_offset" in shown
        assert isinstance(view, numpy.ndarray)
        part = view[5:8]
        assert "queue_offset" not in check(part._repr_html_() or "")
        assert "3 units" in check(part._repr_html_() or "")
        assert view["size"]._repr_html_() is None
        assert "0 units" in check(store.queue_view("None", 0)._repr_html_() or "")
        assert pickle.loads(pickle.dumps(view)).tolist() == view.tolist()


def test_a_view_of_a_batch_queue(tmp_path: Path) -> None:
    with rocketstore.open(golden_stores.unpack("inner-5.3.3", tmp_path)) as store:
        queue_id = store.queues("BCQ")[0]
        view = store.queue_view("BCQ", queue_id)
        assert f"Queue {queue_id} of BCQ, {len(view):,} units" in check(view._repr_html_() or "")


@given(st.text(), st.integers(1, 60))
def test_any_text_is_text(value: str, limit: int) -> None:
    shown = check(f"<div>{repr_html.text(value, limit)}</div>")
    assert shown.startswith(value[:limit]) or repr_html._UNSEEN.search(value[:limit])


@given(st.binary(max_size=300), st.sampled_from([0, 7990, 8000, 8010]))
def test_any_body_is_shown(tail: bytes, padding: int) -> None:
    body = "é".encode() * (padding // 2) + tail
    assert check(f"<div>{repr_html.text(repr_html.body_text(body))}</div>") or not body


@pytest.mark.parametrize(
    ("timestamp", "shown"),
    [(None, "-"), (0, "0"), (-5, "-5"), (2**62, str(2**62)), (1500, "1970-01-01 00:00:01.500 UTC")],
)
def test_times(timestamp: Any, shown: str) -> None:
    assert repr_html.time_text(timestamp) == shown
