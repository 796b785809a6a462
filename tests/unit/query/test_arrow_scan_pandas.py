"""pandas and a scan: a frame of messages, or an error that says how to get one.

pandas before 3 does not support the Arrow interface and made a frame of the record batches: 31
rows of one column for 250,000 messages, without an error.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore.errors import CorruptMessageError

pandas = pytest.importorskip("pandas", reason="the extra spark brings pandas")
COUNT = 50


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with rocketstore.open(tmp_path / "store", "x") as made:
        for number in range(COUNT):
            made.put("T", b"%d" % number, 0, "tag", f"k{number}")
        yield made


def test_a_frame_has_a_row_for_each_message(store: Any) -> None:
    scan = store.scan_arrow("core", batch_rows=7)
    for _ in range(2):  # each use reads it again
        frame = scan.to_pandas()
        assert list(frame.columns) == scan.columns
        assert frame["queueOffset"].tolist() == list(range(COUNT))
        assert frame["body"].tolist() == [b"%d" % number for number in range(COUNT)]
    assert scan.read_all().num_rows == COUNT
    assert store.scan_arrow("core", topics=["Nope"]).to_pandas().shape == (0, 9)
    typed = store.scan_arrow("topic").to_pandas(strings_to_categorical=True)
    assert str(typed["topic"].dtype) == "category"


@pytest.mark.parametrize(
    "make",
    [
        lambda scan: pandas.DataFrame(scan),
        lambda scan: pandas.DataFrame(scan, columns=["a"]),
        lambda scan: pandas.DataFrame(data=scan, index=range(1)),
        lambda scan: pandas.DataFrame(scan, dtype=object),
        lambda scan: pandas.DataFrame.from_records(scan),
        lambda scan: __import__("numpy").asarray(scan),
        lambda scan: __import__("numpy").array(scan, dtype=object),
    ],
)
def test_never_a_frame_of_batches(make: Callable[[Any], Any], store: Any) -> None:
    scan = store.scan_arrow(["queueOffset", "body"], batch_rows=7)
    try:
        made = make(scan)
    except TypeError:
        return
    assert len(made) == COUNT  # a pandas that knows the Arrow interface


def test_errors_arrive_as_they_are(store: Any, tmp_path: Path) -> None:
    store.close()
    log = tmp_path / "store" / "commitlog" / ("0" * 20)
    with open(log, "r+b") as file:
        at = file.read(1 << 16).index(b"k30")
        file.seek(at - 40)
        file.write(b"\xff" * 20)
    with rocketstore.open(tmp_path / "store") as damaged:
        scan = damaged.scan_arrow("core")
        with pytest.raises(CorruptMessageError):
            scan.to_pandas()
        with pytest.raises(CorruptMessageError):
            scan.read_all()
