"""Logs on storage that is reached by URI: in memory, S3, and through pyarrow."""

from __future__ import annotations

import random
import struct
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import ConfigError, CorruptMessageError, MappedFileError, formats
from rocketstore.sources import files as files_module
from rocketstore.sources import list_log, open_input, plan_splits
from rocketstore.sources.walk import log_end
from support.split_walks import Reading, read_log

SEGMENT = 32 * 1024
BUCKET = "stores"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed store; only to be read."""
    root = tmp_path_factory.mktemp("whole") / "store"
    chance = random.Random(7)
    with rocketstore.open(root, "x", mapped_file_size_commit_log=SEGMENT) as store:
        for number in range(300):
            store.put("T", chance.randbytes(500) if number % 2 else bytes(number), number % 4)
    return root


@pytest.fixture(scope="module")
def s3() -> Iterator[dict[str, Any]]:
    """A server that speaks S3; the options to reach it."""
    boto3 = pytest.importorskip("boto3")
    server_module = pytest.importorskip("moto.server")
    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
    client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1", **keys)
    client.create_bucket(Bucket=BUCKET)
    yield {"key": "test", "secret": "test", "endpoint_url": endpoint}
    server.stop()


def upload(whole: Path, uri: str, options: dict[str, Any] | None) -> str:
    """Copy a store below ``uri``."""
    from fsspec.core import url_to_fs

    system, path = url_to_fs(uri, **(options or {}))
    system.put(str(whole) + "/", path + "/", recursive=True)
    return uri


@pytest.fixture(params=["memory", "s3"])
def remote(request: pytest.FixtureRequest, whole: Path) -> tuple[str, dict[str, Any] | None]:
    """The store's URI on remote storage, and the options to open it with."""
    name = uuid.uuid4().hex
    if request.param == "memory":
        return upload(whole, f"memory://{name}/store", None), None
    options = request.getfixturevalue("s3")
    return upload(whole, f"s3://{BUCKET}/{name}", options), options


@pytest.fixture
def in_memory(whole: Path) -> str:
    """The store's URI in memory."""
    return upload(whole, f"memory://{uuid.uuid4().hex}/store", None)


def test_a_remote_log_is_read_as_the_local_one(
    whole: Path, remote: tuple[str, dict[str, Any] | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    uri, options = remote
    monkeypatch.setattr(files_module, "RANGE_NBYTES", 10_000)
    local = list_log(whole)
    for form in (uri, uri + "/commitlog", uri + "/"):
        log = list_log(form, storage_options=options)
        assert [(s.base_offset, s.file_size) for s in log.segments] == [
            (s.base_offset, s.file_size) for s in local.segments
        ]
        assert log.segment_size == local.segment_size
    log = list_log(uri, storage_options=options)
    assert log.durable_offset == local.durable_offset
    assert log_end(log) == log_end(local)
    for split_bytes in (1 << 20, 30_000):
        reading = read_log(log, split_bytes=split_bytes, storage_options=options)
        assert reading.records == read_log(local).records
        assert reading.damage == []
    times = {"begin": 0, "end": 1}
    assert plan_splits(log, **times) == []


def test_remote_damage_is_found_and_named(whole: Path, in_memory: str) -> None:
    log = list_log(in_memory)
    name = log.segments[1].uri
    write(name, lambda content: content[:5000] + b"\xee" * 1000 + content[6000:])
    with pytest.raises(CorruptMessageError) as caught:
        read_log(log, split_bytes=9000)
    assert caught.value.path == name
    assert 4000 < caught.value.position <= 5000
    reading = read_log(log, split_bytes=9000, on_corruption="skip")
    every = read_log(list_log(whole)).offsets
    lost = set(every) - set(reading.offsets)
    assert reading.offsets == sorted(set(every) - lost)
    assert 2 <= len(lost) <= 10
    assert [first for first, _, _ in reading.damage] == [min(lost)]


def write(uri: str, change: Any) -> None:
    """Change a remote file's content."""
    from fsspec.core import url_to_fs

    system, path = url_to_fs(uri)
    system.pipe_file(path, change(system.cat_file(path)))


def test_a_remote_file_that_shrinks_or_goes_is_named(in_memory: str) -> None:
    from fsspec.core import url_to_fs

    splits = plan_splits(list_log(in_memory))
    write(splits[0].uri, lambda content: content[:3000])
    with pytest.raises(MappedFileError, match="was truncated"):
        Reading(splits[:1])
    system, path = url_to_fs(splits[1].uri)
    system.rm_file(path)
    with pytest.raises(MappedFileError, match="does not exist"):
        Reading(splits[1:2])


def test_what_is_no_remote_store_is_refused(in_memory: str) -> None:
    with pytest.raises(FileNotFoundError, match="no store"):
        list_log(in_memory + "/nowhere")
    with pytest.raises(FileNotFoundError, match="not a store"):
        list_log(in_memory.removesuffix("/store"))
    with pytest.raises(NotADirectoryError):
        list_log(in_memory + "/checkpoint")
    with pytest.raises(ConfigError, match="gopher://"):
        list_log("gopher://host/store")


@pytest.mark.parametrize("place", ["dledger-n0/data", "commitlog"])
def test_a_remote_dledger_log_is_refused(place: str) -> None:
    from fsspec.core import url_to_fs

    uri = f"memory://{uuid.uuid4().hex}/store"
    system, path = url_to_fs(uri)
    head = struct.pack(">iiqqq", 1, 300, 0, 1, 0)
    system.pipe_file(f"{path}/{place}/{formats.offset_to_file_name(0)}", head + bytes(1000))
    system.pipe_file(f"{path}/consumequeue/x", b"")
    with pytest.raises(MappedFileError, match="DLedger"):
        list_log(uri)


def test_a_missing_remote_segment_is_named(in_memory: str) -> None:
    from fsspec.core import url_to_fs

    system, path = url_to_fs(list_log(in_memory).segments[1].uri)
    system.rm_file(path)
    with pytest.raises(MappedFileError, match=f"has no bytes {SEGMENT} to {2 * SEGMENT}"):
        list_log(in_memory)


def test_pyarrow_reads_what_fsspec_does_not_know(
    whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fsspec.core

    def refuse(uri: str, **options: Any) -> None:
        raise ValueError("Protocol not known")

    monkeypatch.setattr(fsspec.core, "url_to_fs", refuse)
    monkeypatch.setattr(files_module, "local_path", lambda uri: None)
    uri = whole.as_uri()
    found, path = files_module.remote_files(uri)
    entries = {entry.name: entry for entry in found.entries(path)}
    assert entries["commitlog"].is_folder
    assert entries["checkpoint"].size == 4096
    content = (whole / "checkpoint").read_bytes()
    assert found.read(f"{path}/checkpoint", 8, 16) == content[8:24]
    assert found.read(f"{path}/checkpoint", 4090, 16) == content[4090:]
    assert found.read(f"{path}/checkpoint", 5000, 16) == b""


def test_input_reads_ahead_from_anywhere(
    whole: Path, in_memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_module, "RANGE_NBYTES", 4096)
    segment = list_log(in_memory).segments[0]
    content = Path(list_log(whole).segments[0].uri).read_bytes()
    file = open_input(segment.uri, position=1000)
    buffer = memoryview(bytearray(3000))
    position = 1000
    for jump in (None, None, None, 5, 30_000, None, None, 0, None):
        if jump is not None:
            position = file.seek(jump)
        count = file.readinto(buffer)
        assert bytes(buffer[:count]) == content[position : position + count]
        assert count > 0 or position == len(content)
        position += count
    file.seek(len(content))
    assert file.readinto(buffer) == 0
    file.close()
    file.close()
    names = [thread.name for thread in threading.enumerate()]
    assert not any(name.startswith("rocketstore-read-ahead") for name in names)


def test_input_of_a_local_file_is_the_file(whole: Path) -> None:
    path = whole / "checkpoint"
    for form in (path, str(path), path.as_uri()):
        file = open_input(form, position=3)
        buffer = memoryview(bytearray(5000))
        assert file.readinto(buffer) == 4093
        assert bytes(buffer[:4093]) == path.read_bytes()[3:]
        assert file.next_data(0) == 0
        assert file.next_data(4096) is None
        file.close()
    with pytest.raises(MappedFileError, match="directory"):
        open_input(whole)
    with pytest.raises(MappedFileError, match="does not exist"):
        open_input(whole / "nothing")
