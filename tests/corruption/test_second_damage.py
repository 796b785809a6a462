"""A second damaged place after a first one, in a field that no CRC covers."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import rocketstore
from golden import golden_stores
from rocketstore import CorruptionError, formats

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="stores are only read there")
# One record after a damaged one had an absurd queue offset. Recovery took it as proof that all
# later records were stale. Opening a killed store without a state file truncated 180 good records
# that had been durable, and mode "r" showed 33 of 219 without a report.

_HEAD = formats.RECORD_HEAD
_PLACES = {name: _HEAD.at(name) for name in ("magic", "queue_offset", "queue_id")}
_PLACES["store_timestamp"] = _HEAD.nbytes + 8  # after an IPv4 born host
_HUGE = b"\x06\x73\x0b\x66\x1e\x01\xd2\x10"
#: Number of each damaged record, the field, and what it becomes.
Place = tuple[int, str, bytes]
WAYS: dict[str, tuple[Place, ...]] = {
    "a huge queue offset": ((100, "magic", b"!!!!"), (103, "queue_offset", _HUGE)),
    "a lower queue offset": ((100, "magic", b"!!!!"), (102, "queue_offset", bytes(8))),
    "right after it": ((100, "magic", b"!!!!"), (101, "queue_offset", _HUGE)),
    "no store time": ((100, "magic", b"!!!!"), (101, "store_timestamp", bytes(8))),
    "three places": (
        (100, "magic", b"!!!!"),
        (101, "store_timestamp", bytes(8)),
        (102, "magic", b"!!!!"),
    ),
    "four places": (
        (100, "magic", b"!!!!"),
        (101, "queue_offset", _HUGE),
        (102, "magic", b"!!!!"),
        (103, "queue_offset", _HUGE),
    ),
    "a huge time before it": ((99, "store_timestamp", _HUGE), (100, "magic", b"!!!!")),
    "a late time before it": (
        (99, "store_timestamp", (2_900_000_000_000).to_bytes(8, "big")),
        (100, "magic", b"!!!!"),
    ),
    "another queue": ((100, "magic", b"!!!!"), (101, "queue_id", b"\0\0\0\x7f")),
}


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("name", ["crash-4.9.8", "crash-5.3.3", "plain-5.3.3"])
def test_all_other_records_are_served_and_nothing_is_truncated(
    name: str, way: str, tmp_path: Path
) -> None:
    root = golden_stores.unpack(name, tmp_path)
    with rocketstore.open(root) as store:
        records = [message.physical_offset for message in store.scan()]
        size = store.facts.commit_log_file_size
    (root / "abort").touch()
    hit = set()
    for number, field, value in WAYS[way]:
        offset = records[number]
        hit.add(offset)
        path = root / "commitlog" / formats.offset_to_file_name(offset - offset % size)
        with path.open("r+b") as file:
            file.seek(offset % size + _PLACES[field])
            file.write(value)
    before = _content(root)
    with rocketstore.open(root) as store:
        served = {message.physical_offset for message in store.scan(on_corruption="skip")}
        assert set(records) - served <= hit
        assert records[100] in {damage.start for damage in store.recovery_report.damaged}
    with pytest.raises(CorruptionError):
        rocketstore.open(root, "r+")
    assert _content(root) == before


def _content(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (root / "commitlog").iterdir()}
