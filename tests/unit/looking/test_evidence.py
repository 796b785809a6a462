"""``prove``: what the folder holds, for good and damaged records."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path

import pytest

from golden.golden_stores import unpack
from rocketstore.errors import MappedFileError
from rocketstore.looking.evidence import prove
from rocketstore.looking.search import grep
from support.directory import files_below
from support.looked_stores import SEGMENT, make_store, plain_records


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("looked") / "store")


def test_a_record(root: Path, tmp_path: Path) -> None:
    before = files_below(root)
    records = [one for one in plain_records(root) if one.topic is not None]
    one = records[20]
    evidence = prove(root, one.offset, tmp_path / "out")
    assert files_below(root) == before
    assert evidence.ok
    content = (root / "commitlog" / f"{0:020d}").read_bytes()
    written = {name: (tmp_path / "out" / name).read_bytes() for name in evidence.files}
    assert written["record.bin"] == content[one.offset : one.offset + one.nbytes]
    assert written["body.bin"] == one.body
    assert written["before.bin"] == content[records[19].offset : one.offset]
    assert written["after.bin"][:4] == records[21].nbytes.to_bytes(4, "big")
    document = json.loads(written["evidence.json"])
    assert document == evidence.document
    assert document["schema"] == "rocketstore.evidence/1"
    assert document["segment"]["sha256"] == hashlib.sha256(content).hexdigest()
    for entry in document["files"]:
        assert entry["sha256"] == hashlib.sha256(written[entry["name"]]).hexdigest()
    fields = document["record"]["fields"]
    assert (fields["topic"], fields["queueId"]) == (one.topic, one.queue_id)
    assert base64.b64decode(fields["propertiesBase64"]).startswith(b"n\x0120")
    assert document["record"]["crc"]["body"]["right"] is True
    assert document["unit"]["right"] is True
    assert [entry["key"] for entry in document["index"]][-1] == one.properties["KEYS"]
    assert all(entry["files"] for entry in document["index"])


def test_the_first_and_the_last_record(root: Path, tmp_path: Path) -> None:
    records = [one for one in plain_records(root) if one.topic is not None]
    first = prove(root, 0, tmp_path / "first")
    assert first.document["neighbours"]["before"] is None
    last = prove(root, records[-1].offset, tmp_path / "last")
    assert last.ok
    assert last.document["neighbours"]["after"]["status"] == "EMPTY"
    bare = prove(root / "commitlog" / f"{SEGMENT:020d}", SEGMENT, tmp_path / "bare")
    assert bare.ok
    assert "unit" not in bare.document


def test_damage_and_missing_references(tmp_path: Path) -> None:
    root = make_store(tmp_path / "store")
    records = [one for one in plain_records(root) if one.topic is not None]
    one = records[10]
    path = root / "commitlog" / f"{0:020d}"
    content = bytearray(path.read_bytes())
    content[one.offset + 88] ^= 1
    path.write_bytes(content)
    evidence = prove(root, one.offset, tmp_path / "out")
    assert "no good record" in evidence.findings[0]
    assert evidence.files == ["place.bin", "before.bin", "evidence.json"]
    kept = (tmp_path / "out" / "place.bin").read_bytes()
    assert kept == bytes(content[one.offset :])


def test_it_refuses(root: Path, tmp_path: Path) -> None:
    before = files_below(root)
    with pytest.raises(ValueError, match="no readable file"):
        prove(root, 10**12, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    for inside in (root / "out", root / "commitlog" / "out", root):
        with pytest.raises(MappedFileError, match="inside the store"):
            prove(root, 0, inside)
        with pytest.raises(MappedFileError, match="inside the store"):
            prove(root / "commitlog" / f"{0:020d}", 0, inside)
    (tmp_path / "link").symlink_to(root)
    with pytest.raises(MappedFileError, match="inside the store"):
        prove(root, 0, tmp_path / "link" / "out")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    with pytest.raises(FileExistsError, match="not empty"):
        prove(root, 0, tmp_path / "full")
    assert files_below(root) == before


@pytest.mark.parametrize("name", ["crc-5.3.3", "engine/transaction-5.3.3", "plain-4.9.8"])
def test_golden_stores(name: str, tmp_path: Path) -> None:
    root = unpack(name, tmp_path)
    offsets = [match.message.physical_offset for match in grep(root, raw=True)]
    for number, offset in enumerate(offsets[::15]):
        evidence = prove(root, offset, tmp_path / str(number))
        assert evidence.findings == []
