"""Statuses print as their names: ``print(result.status)`` printed a number."""

from __future__ import annotations

import json
import pickle
from enum import IntEnum
from pathlib import Path

import pytest

import rocketstore
from rocketstore import status

KINDS = (
    *(status.PutMessageStatus, status.AppendMessageStatus, status.GetMessageStatus),
    *(status.RecordStatus, status.KernelStatus, status.FlushDiskType),
)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_status_is_a_number_that_prints_as_its_name(kind: type[IntEnum]) -> None:
    for one in kind:
        assert str(one) == f"{one}" == f"{one!s}" == one.name
        assert f"{one:>30}".strip() == one.name
        assert f"{one:d}" == int.__repr__(one)
        assert f"{one:03d}" == f"{int(one):03d}"
        assert json.dumps({"status": one}) == json.dumps({"status": int(one)})
        assert one == int(one)
        assert hash(one) == hash(int(one))
        assert kind(int(one)) is one is pickle.loads(pickle.dumps(one))
        assert [10, 20][one == kind(0)] in (10, 20)


def test_results_show_names(tmp_path: Path) -> None:
    with rocketstore.open(tmp_path / "store", "x") as store:
        put = store.put("T", b"x")
        store.wait_dispatched(60)
        got = store.get_message("g", "T", 0, 0)
        unknown = store.get_message("g", "Nope", 0, 0)
    assert str(put.status) == "PUT_OK"
    assert str(put.append_status) == "PUT_OK"
    assert "PUT_OK" in repr(put)
    assert str(got.status) == "FOUND"
    assert repr(got) == (
        "GetMessageResult(FOUND, next_begin_offset=1, min_offset=0, max_offset=1, messages=1)"
    )
    assert repr(unknown).startswith("GetMessageResult(NO_MESSAGE_IN_QUEUE, ")
