"""The files of a log or queue: adding at the end, deleting at the beginning."""

import os
import threading

import pytest

import rocketstore
from rocketstore.files import mapped_file_queue
from rocketstore.files.durable import ReplacedFileError
from rocketstore.files.mapped_file_queue import MappedFileQueue, list_directory

SIZE = 8192


@pytest.fixture
def queue(tmp_path):
    """Four files, the n-th filled with the byte n + 1."""
    queue = MappedFileQueue(tmp_path / "q", SIZE, tmp_path, writable=True)
    for number in range(4):
        file = queue.create_file(number * SIZE, allocated=SIZE)
        memoryview(file.mapping)[:] = bytes([number + 1]) * SIZE
        file.wrote_position = SIZE
    yield queue
    queue.close()


def names(queue):
    """Offsets that the names in the queue's folder say."""
    return [offset for offset, _, _ in list_directory(queue.directory, queue.directory).files]


def test_the_first_files_are_deleted_the_oldest_first_each_durably(queue, monkeypatch):
    events = []
    unlink, sync = os.unlink, mapped_file_queue.sync_directory

    def note_unlink(path, **others):
        events.append(int(os.path.basename(path)))
        unlink(path, **others)

    def note_sync(path):
        events.append("sync")
        sync(path)

    monkeypatch.setattr(os, "unlink", note_unlink)
    monkeypatch.setattr(mapped_file_queue, "sync_directory", note_sync)
    queue.delete_first(queue.files[:2])
    assert events == [0, "sync", SIZE, "sync"]
    assert names(queue) == [2 * SIZE, 3 * SIZE]
    assert queue.min_offset == 2 * SIZE
    assert queue.find_mapped_file_by_offset(SIZE) is None


def test_no_folder_is_made_in_place_of_one_that_was_moved_away(queue, tmp_path):
    """Between the look at the last file and the creation of the next, a second folder was created,
    and the one that was moved could not come back."""
    queue.directory.rename(tmp_path / "away")
    with pytest.raises(ReplacedFileError, match="its folder was"):
        queue.create_file(4 * SIZE, allocated=SIZE)
    assert [path.name for path in tmp_path.iterdir()] == ["away"]
    (tmp_path / "away").rename(queue.directory)
    queue.create_file(4 * SIZE, allocated=SIZE)
    assert len(names(queue)) == 5


@pytest.mark.parametrize("chosen", [slice(1, 2), slice(0, 4), slice(3, 4)])
def test_only_the_first_files_and_never_the_last_are_deleted(queue, chosen):
    with pytest.raises(ValueError, match="first ones"):
        queue.delete_first(queue.files[chosen])
    assert names(queue) == [0, SIZE, 2 * SIZE, 3 * SIZE]
    assert len(queue.files) == 4


def test_what_is_held_of_a_deleted_file_stays_readable(queue, tmp_path):
    queue.close()
    queue = MappedFileQueue(tmp_path / "q", SIZE, tmp_path, writable=True)
    queue.load(list_directory(queue.directory, tmp_path))
    used, unused = queue.files[:2]
    view = used.view
    queue.delete_first([used, unused])
    assert bytes(view) == b"\1" * SIZE
    # Not even one who found the file, but had not looked into it, meets an error.
    assert unused.view[SIZE - 1] == 2
    assert unused.read(4000, 200) == b"\2" * 200
    unused.release_mapping()
    assert unused.view[0] == 2
    queue.close()
    assert bytes(view[:3]) == b"\1\1\1"


def test_a_file_that_cannot_be_deleted_stays_in_the_row(queue, monkeypatch):
    stuck = queue.files[1]

    def unlink(path, **_others):
        raise PermissionError(1, "not permitted", str(path))

    queue.delete_first(queue.files[:1])
    monkeypatch.setattr(os, "unlink", unlink)
    with pytest.raises(PermissionError):
        queue.delete_first(queue.files[:2])
    assert queue.files[0] is stuck
    assert queue.find_mapped_file_by_offset(SIZE) is stuck
    monkeypatch.undo()
    queue.delete_first(queue.files[:2])
    assert names(queue) == [3 * SIZE]


def test_a_folder_that_could_not_be_synced_is_synced_before_the_next_deletion(queue, monkeypatch):
    calls = []

    def fail(path):
        calls.append(path)
        raise OSError(5, "the disk failed")

    monkeypatch.setattr(mapped_file_queue, "sync_directory", fail)
    for _ in range(2):
        with pytest.raises(OSError, match="the disk failed"):
            queue.delete_first(queue.files[:2])
    assert len(calls) == 2
    # The first file is gone, the second was not touched while that was not durable.
    assert names(queue) == [SIZE, 2 * SIZE, 3 * SIZE]
    assert queue.min_offset == SIZE
    monkeypatch.undo()
    queue.delete_first(queue.files[:1])
    assert names(queue) == [2 * SIZE, 3 * SIZE]


def test_deleting_at_the_start_loses_no_file_added_at_the_end(queue):
    """One thread adds files while another deletes the first ones: no file gets lost."""
    last, failures = 60, []

    def add():
        try:
            for number in range(4, last):
                queue.create_file(number * SIZE, allocated=0)
        except Exception as error:  # noqa: BLE001 - reported below
            failures.append(error)

    thread = threading.Thread(target=add)
    thread.start()
    deleted = 0
    while thread.is_alive() or len(queue.files) > 1:
        count = len(queue.files) - 1
        queue.delete_first(queue.files[:count])
        deleted += count
    thread.join(120)
    assert not failures
    assert deleted == last - 1
    assert names(queue) == [(last - 1) * SIZE]
    assert [file.file_from_offset for file in queue.files] == [(last - 1) * SIZE]


@pytest.mark.parametrize("pooled", [False, True])
def test_segments_that_are_full_and_synced_hold_no_descriptor(tmp_path, pooled):
    """A log that rolls for long would need more descriptors than a process may have."""
    with rocketstore.open(
        tmp_path / "store",
        "a",
        start=False,
        mapped_file_size_commit_log=16 * 1024,
        transient_store_pool_enable=pooled,
    ) as store:
        files = store._writer.log.queue
        for number in range(200):
            store.put("T", b"%d" % number + bytes(1000))
            if number % 20 == 19:
                store.flush()
                assert [f._fd is not None for f in files.files] == [False] * (
                    len(files.files) - 1
                ) + [True]
        assert len(files.files) > 10
        bodies = [message.body[:3].rstrip(b"\0") for message in store.scan()]
    assert bodies == [b"%d" % number for number in range(200)]
