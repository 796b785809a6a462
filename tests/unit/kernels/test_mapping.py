"""Mappings of both bodies: exports, closing, ranges; the guard against shortened files."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketstore.status import RecordStatus
from support.kernel_bodies import NATIVE, Bodies
from support.own_process import run_python
from support.record_factory import make_log

NBYTES = 3 * 4096 + 100


@pytest.fixture
def fd(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    os.truncate(descriptor, NBYTES)
    yield descriptor
    os.close(descriptor)


def test_reads_and_writes_the_file(kernels: Bodies, fd: int) -> None:
    mapping = kernels.mapping.Mapping(fd, NBYTES, True)
    assert (mapping.nbytes, len(mapping), mapping.writable) == (NBYTES, NBYTES, True)
    view = mapping.view()
    assert (view.nbytes, view.itemsize, view.readonly) == (NBYTES, 1, False)
    view[5000:5003] = b"abc"
    assert os.pread(fd, 3, 5000) == b"abc"
    os.pwrite(fd, b"xyz", 100)
    assert view[100:103] == b"xyz"
    mapping.sync(4999, 10)
    mapping.sync(0, NBYTES)
    mapping.sync(NBYTES, 0)
    assert kernels.mapping.Mapping(fd, 10).view()[:] == bytes(10)


def test_is_named_compares_name_and_file(kernels: Bodies, fd: int, tmp_path: Path) -> None:
    is_named = kernels.mapping.is_named
    path, about = tmp_path / "file", os.fstat(fd)
    device, inode = about.st_dev, about.st_ino
    name = os.fsencode(path)
    assert is_named(name, device, inode, 0)
    assert is_named(name, device, inode, NBYTES)
    assert not is_named(name, device, inode, NBYTES + 1)
    assert not is_named(name, device, inode + 1, 0)
    assert not is_named(name, device + 1, inode, 0)
    odd = tmp_path / os.fsdecode(b"a \xff\n\xc3\xa4")
    path.rename(odd)
    assert not is_named(name, device, inode, 0)
    assert is_named(os.fsencode(odd), device, inode, NBYTES)
    path.symlink_to(odd)
    assert is_named(name, device, inode, NBYTES)
    path.unlink()
    path.write_bytes(bytes(NBYTES))
    assert not is_named(name, device, inode, 0)
    path.unlink()
    path.mkdir()
    assert not is_named(name, device, inode, 0)
    assert not is_named(name + b"/none/below", device, inode, 0)
    assert not is_named(b"x" * 5000, device, inode, 0)
    path.rmdir()
    path.symlink_to(path)
    assert not is_named(name, device, inode, 0)
    os.truncate(odd, NBYTES - 1)
    assert not is_named(os.fsencode(odd), device, inode, NBYTES)


def test_is_named_takes_bytes_without_nul(kernels: Bodies, fd: int, tmp_path: Path) -> None:
    name = os.fsencode(tmp_path / "file")
    with pytest.raises(ValueError, match="null"):
        kernels.mapping.is_named(name + b"\0", 0, 0, 0)
    with pytest.raises(TypeError):
        kernels.mapping.is_named(os.fsdecode(name), 0, 0, 0)


def test_a_read_only_mapping(kernels: Bodies, fd: int) -> None:
    mapping = kernels.mapping.Mapping(fd, NBYTES)
    assert not mapping.writable
    assert mapping.view().readonly
    with pytest.raises(TypeError, match="read-only"):
        memoryview(mapping)[0] = 1
    with pytest.raises(ValueError, match="read-only mapping"):
        mapping.populate(0, 10)


def test_a_private_mapping_leaves_the_file_alone(kernels: Bodies, fd: int) -> None:
    mapping = kernels.mapping.Mapping(fd, NBYTES, True, True)
    view = mapping.view()
    view[0] = 7
    assert os.pread(fd, 1, 0) == b"\0"
    assert mapping.advise("dontneed") is False
    assert view[0] == 7


def test_memory_without_a_file(kernels: Bodies) -> None:
    mapping = kernels.mapping.Mapping(-1, 100, True, True)
    view = mapping.view()
    assert view == bytes(100)
    view[99] = 1
    assert mapping.view()[99] == 1


def locked_kib() -> int:
    """What /proc says of this process's locked memory."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmLck:"))


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_locking_is_counted_by_the_system(kernels: Bodies, fd: int) -> None:
    for mapping in (
        kernels.mapping.Mapping(fd, NBYTES, True),
        kernels.mapping.Mapping(-1, NBYTES, True, True),
    ):
        before = locked_kib()
        mapping.lock(0, NBYTES)
        assert locked_kib() == before + 16
        mapping.unlock(5000, 1)  # the page that holds the byte
        assert locked_kib() == before + 12
        mapping.unlock(0, NBYTES)
        assert locked_kib() == before
        mapping.lock(0, NBYTES)
        mapping.close()
        assert locked_kib() == before


_REFUSED_LOCK = """
import ctypes, errno, os, resource
from rocketstore._{name}.mapping import Mapping

resource.setrlimit(resource.RLIMIT_MEMLOCK, (0, 0))
if os.getuid() == 0:
    os.setuid(65534)  # root may lock in spite of the limit
mapping = Mapping(-1, 100, True, True)
try:
    mapping.lock(0, 100)
except OSError as error:
    print(error.errno in (errno.EPERM, errno.ENOMEM, errno.EAGAIN))
mapping.unlock(0, 100)
mapping.view()[99] = 1
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have other limits")
def test_a_lock_that_is_not_permitted_is_an_error(kernels: Bodies) -> None:
    done = run_python(_REFUSED_LOCK.format(name=kernels.name))
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_clearing(kernels: Bodies) -> None:
    mapping = kernels.mapping.Mapping(-1, NBYTES, True, True)
    view = mapping.view()
    view[:] = b"\xff" * NBYTES
    mapping.clear(3, NBYTES - 5)
    mapping.clear(0, 0)
    assert bytes(view) == b"\xff" * 3 + bytes(NBYTES - 5) + b"\xff" * 2


@pytest.mark.parametrize("method", ["lock", "unlock", "clear", "populate"])
def test_what_needs_a_writable_mapping_checks_its_range(
    kernels: Bodies, fd: int, method: str
) -> None:
    mapping = kernels.mapping.Mapping(fd, NBYTES, True)
    for position, length in ((-1, 1), (0, -1), (0, NBYTES + 1), (NBYTES, 1), (2**63 - 1, 1)):
        with pytest.raises(ValueError, match="outside"):
            getattr(mapping, method)(position, length)
    with pytest.raises(ValueError, match="read-only mapping"):
        getattr(kernels.mapping.Mapping(fd, NBYTES), method)(0, 1)
    mapping.close()
    with pytest.raises(ValueError, match="closed"):
        getattr(mapping, method)(0, 1)


def test_closed_mappings_live_as_long_as_their_views(kernels: Bodies, fd: int) -> None:
    before = kernels.mapping.mapped_nbytes()
    mapping = kernels.mapping.Mapping(fd, NBYTES, True)
    view = mapping.view()
    assert mapping.exports == 1
    assert kernels.mapping.mapped_nbytes() == before + NBYTES
    mapping.close()
    mapping.close()
    assert mapping.closed
    view[1] = 9
    assert view[1] == 9
    for call in (mapping.view, lambda: mapping.sync(0, 1), lambda: mapping.advise("normal"),
                 lambda: mapping.populate(0, 1),
                 lambda: mapping.populate_for_reading(0, 1)):  # fmt: skip
        with pytest.raises(ValueError, match="closed"):
            call()
    assert kernels.mapping.mapped_nbytes() == before + NBYTES
    del view
    assert mapping.exports == 0
    assert kernels.mapping.mapped_nbytes() == before
    with pytest.raises(ValueError, match="closed"):
        memoryview(mapping)


def test_a_native_mapping_counts_every_buffer(fd: int) -> None:
    mapping = NATIVE.mapping.Mapping(fd, NBYTES, True)
    views = [memoryview(mapping), memoryview(mapping)[5:], mapping.view()]
    assert mapping.exports == 3
    mapping.close()
    with pytest.raises(ValueError, match="closed"):
        memoryview(mapping)
    while views:
        assert mapping.exports == len(views)
        views.pop()
    assert mapping.exports == 0


def test_dropping_the_mapping_unmaps(kernels: Bodies, fd: int) -> None:
    before = kernels.mapping.mapped_nbytes()
    mapping = kernels.mapping.Mapping(fd, NBYTES)
    view = mapping.view()
    del mapping
    assert kernels.mapping.mapped_nbytes() == before + NBYTES
    del view
    assert kernels.mapping.mapped_nbytes() == before


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [(0, "at least one byte"), (-1, "at least one byte"), (NBYTES + 1, f"the file has {NBYTES}")],
)
def test_lengths_that_cannot_be_mapped(kernels: Bodies, fd: int, nbytes: int, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        kernels.mapping.Mapping(fd, nbytes)


def test_descriptors_that_cannot_be_mapped(kernels: Bodies, tmp_path: Path, fd: int) -> None:
    with pytest.raises(OSError, match="Bad file descriptor"):
        kernels.mapping.Mapping(2**20, 10)
    with pytest.raises(ValueError, match="must be writable and private"):
        kernels.mapping.Mapping(-1, 10)
    with pytest.raises(ValueError, match="must be writable and private"):
        kernels.mapping.Mapping(-2, 10, True, True)
    read_only = os.open(tmp_path / "file", os.O_RDONLY)
    try:
        with pytest.raises(PermissionError):
            kernels.mapping.Mapping(read_only, 10, True)
    finally:
        os.close(read_only)


@pytest.mark.parametrize(
    ("position", "length"), [(-1, 1), (0, -1), (0, NBYTES + 1), (NBYTES, 1), (2**62, 2**62)]
)
def test_ranges_outside_the_mapping(kernels: Bodies, fd: int, position: int, length: int) -> None:
    mapping = kernels.mapping.Mapping(fd, NBYTES, True)
    for method in (mapping.sync, mapping.populate, mapping.populate_for_reading):
        with pytest.raises(ValueError, match="are outside"):
            method(position, length)
    with pytest.raises(ValueError, match="are outside"):
        mapping.advise("normal", position, length)


def test_advice(kernels: Bodies, fd: int) -> None:
    mapping = kernels.mapping.Mapping(fd, NBYTES, True)
    for word in ("normal", "random", "sequential", "willneed", "dontneed"):
        assert mapping.advise(word) is True
        assert mapping.advise(word, 5000, 1) is True
    assert mapping.advise("normal", NBYTES) is True
    with pytest.raises(ValueError, match="advice 'quickly' must be one of"):
        mapping.advise("quickly")


@pytest.mark.parametrize(("position", "length"), [(4096, 8192), (100, 9000), (12288, 100)])
def test_an_emptied_range_is_zero(kernels: Bodies, fd: int, position: int, length: int) -> None:
    full = b"x" * NBYTES
    os.pwrite(fd, full, 0)
    mapping = kernels.mapping.Mapping(fd, NBYTES, True)
    before, blocks = memoryview(mapping)[position : position + 1], os.fstat(fd).st_blocks
    if not kernels.mapping.zero_range(fd, position, length):
        assert os.pread(fd, NBYTES, 0) == full
        if kernels is not NATIVE:
            return  # it never does
        pytest.skip("impossible on this machine: the file system empties no ranges")
    wanted = full[:position] + bytes(length) + full[position + length :]
    assert os.pread(fd, NBYTES, 0) == bytes(memoryview(mapping))[:NBYTES] == wanted[:NBYTES]
    assert before.tobytes() == b"\0"
    assert os.fstat(fd).st_blocks >= blocks


@pytest.mark.parametrize(("position", "length"), [(-1, 10), (0, 0), (0, -1), (2**63 - 1, 1)])
def test_ranges_that_cannot_be_emptied(
    kernels: Bodies, fd: int, position: int, length: int
) -> None:
    with pytest.raises(ValueError, match="are not a range"):
        kernels.mapping.zero_range(fd, position, length)


def test_populate(kernels: Bodies, fd: int) -> None:
    mapping = kernels.mapping.Mapping(fd, NBYTES, True)
    assert mapping.populate(4097, 5000) in (True, False)
    assert mapping.view()[:] == bytes(NBYTES)


def test_populate_for_reading(kernels: Bodies, fd: int) -> None:
    mapping = kernels.mapping.Mapping(fd, NBYTES)
    for position, length in ((0, NBYTES), (4097, 5000), (NBYTES, 0)):
        assert mapping.populate_for_reading(position, length) in (True, False)
    assert mapping.view()[:] == bytes(NBYTES)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems map nothing ahead")
def test_pages_that_cannot_be_read_are_not_populated(kernels: Bodies, fd: int) -> None:
    """Opening maps the log's end ahead; a file that is truncated meanwhile must not end it."""
    mapping = kernels.mapping.Mapping(fd, NBYTES)
    os.ftruncate(fd, 0)
    assert mapping.populate_for_reading(0, NBYTES) is False


def test_allocate(kernels: Bodies, fd: int) -> None:
    os.ftruncate(fd, 2**20)
    if kernels.mapping.allocate(fd, 4096, 2**19):
        assert os.fstat(fd).st_blocks * 512 >= 2**19
    assert os.fstat(fd).st_size == 2**20
    kernels.mapping.allocate(fd, 2**20, 4096)
    assert os.fstat(fd).st_size == 2**20
    for position, length in ((-1, 1), (0, 0), (0, -1), (2**63 - 1, 1)):
        with pytest.raises(ValueError, match="are not a range"):
            kernels.mapping.allocate(fd, position, length)
    with pytest.raises(OSError, match="Bad file descriptor"):
        kernels.mapping.allocate(2**20, 0, 1)


def test_repr(kernels: Bodies, fd: int) -> None:
    mapping = kernels.mapping.Mapping(fd, NBYTES, True)
    assert repr(mapping) == f"<Mapping of {NBYTES} bytes, writable>"
    mapping.close()
    assert repr(mapping) == f"<Mapping of {NBYTES} bytes, closed>"


# --- The guard ----------------------------------------------------------------------------------


@pytest.fixture
def shortened(tmp_path: Path) -> tuple[bytes, object]:
    """A log of 300 records, and a mapping of it whose file ends after its first page."""
    log = make_log(*({"body": bytes([i % 256]) * 20} for i in range(300)))
    with open(tmp_path / "log", "w+b") as file:
        file.write(log)
        file.flush()
        mapping = NATIVE.mapping.Mapping(file.fileno(), len(log))
        file.truncate(4096)
    return log, mapping


def test_a_scan_of_a_shortened_file_ends_with_a_fault(shortened: tuple[bytes, object]) -> None:
    log, mapping = shortened
    message = NATIVE.message
    out = bytearray(144 * 400)
    rows, position, status = message.scan_records(mapping, 0, len(log), 0, len(log), 1, out)
    expected = message.scan_records(log, 0, 4096, 0, len(log), 1, bytearray(len(out)))
    assert (rows, position) == expected[:2]
    assert status == RecordStatus.FAULT
    assert out[: 144 * rows] != bytes(144 * rows)
    assert message.check_record(mapping, position, len(log), 0, len(log)) == (RecordStatus.FAULT, 0)
    assert message.check_record(mapping, 0, len(log), 0, len(log))[0] == RecordStatus.OK


def test_everything_else_raises(shortened: tuple[bytes, object]) -> None:
    log, mapping = shortened
    message = NATIVE.message
    gone = memoryview(mapping)[8192:9000]
    for call in (
        lambda: message.find_record(mapping, 1, len(log), 7, len(log)),
        lambda: message.crc32(mapping),
        lambda: message.string_hash_code(gone),
        lambda: message.parse_properties(gone),
        lambda: message.StoredMessage(mapping, 8192, 0, len(log)),
        lambda: message.Message("T", gone),
        lambda: message.encode_record("T", gone, 0, 0, 0, 0, 0, 0, "1.1.1.1:1", 0, "1.1.1.1:1", 0,
                                      0, b""),
    ):  # fmt: skip
        with pytest.raises(OSError, match="the mapped file was shortened"):
            call()


def test_a_message_whose_file_gets_shorter(tmp_path: Path) -> None:
    log = make_log({"body": b"x" * 5000}, {})
    with open(tmp_path / "log", "w+b") as file:
        file.write(log)
        file.flush()
        mapping = NATIVE.mapping.Mapping(file.fileno(), len(log))
        first = NATIVE.message.StoredMessage(mapping, 0, 0, len(log))
        file.truncate(4096)
    assert first.store_timestamp == 1_700_000_000_123
    assert first.queue_offset == 11
    for name in ("body", "topic", "properties", "properties_bytes", "tags"):
        with pytest.raises(OSError, match="the mapped file was shortened"):
            getattr(first, name)
    with pytest.raises(OSError, match="the mapped file was shortened"):
        first.detach()


SCAN_SHORTENED = """
import faulthandler, os, signal, sys, tempfile
{setup}
import rocketstore._native.guard as guard
from rocketstore._native.mapping import Mapping
from rocketstore._native.message import check_record, crc32
{between}
file = tempfile.TemporaryFile()
file.write(bytes(8192)); file.flush()
mapping = Mapping(file.fileno(), 8192)
view = memoryview(mapping)
file.truncate(0)
status = check_record(mapping, 0, 8192, 0, 8192)
print("status", status[0], flush=True)
{after}
print("alive", flush=True)
"""


def guarded_run(setup: str = "", between: str = "", after: str = "") -> tuple[int, str, str]:
    program = SCAN_SHORTENED.format(setup=setup, between=between, after=after)
    run = run_python(program)
    return run.returncode, run.stdout, run.stderr


def test_the_process_lives() -> None:
    assert guarded_run()[:2] == (0, f"status {int(RecordStatus.FAULT)}\nalive\n")


def test_faults_in_many_threads() -> None:
    after = """
import threading
counts = []
def work():
    counts.append(sum(check_record(mapping, 0, 8192, 0, 8192)[0] == 30 for _ in range(500)))
threads = [threading.Thread(target=work) for _ in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
print(counts)
"""
    assert guarded_run(after=after)[1].splitlines()[1:] == ["[500, 500, 500, 500]", "alive"]


def test_an_unguarded_sigbus_still_kills() -> None:
    status, output, _ = guarded_run(after="view[5000]")
    assert status == -7 if sys.platform == "linux" else status < 0
    assert output == f"status {int(RecordStatus.FAULT)}\n"


def test_a_signal_sent_to_the_process_still_kills() -> None:
    status, output, _ = guarded_run(after="os.kill(os.getpid(), signal.SIGBUS)")
    assert status < 0
    assert "alive" not in output


def test_the_handler_before_is_called() -> None:
    setup = "faulthandler.enable()"
    status, output, errors = guarded_run(setup=setup, after="view[5000]")
    assert status < 0
    assert output == f"status {int(RecordStatus.FAULT)}\n"
    assert errors.count("Bus error") == 1


def test_a_handler_installed_later() -> None:
    """Another handler took our place: ``install`` puts ours on top again."""
    between = "faulthandler.enable(); guard.install(); guard.install()"
    status, output, errors = guarded_run(between=between)
    assert (status, output, errors) == (0, f"status {int(RecordStatus.FAULT)}\nalive\n", "")
    status, output, errors = guarded_run(between=between, after="view[5000]")
    assert status < 0
    assert "alive" not in output
    assert "Bus error" in errors


def test_a_handler_installed_between_import_and_mapping() -> None:
    """What pytest does to a plugin that imports the package, and many services do: each truncated
    file then killed the process."""
    setup = "import rocketstore._native.mapping; faulthandler.enable()"
    status, output, errors = guarded_run(setup=setup)
    assert (status, output, errors) == (0, f"status {int(RecordStatus.FAULT)}\nalive\n", "")


def test_an_ignored_signal_stays_ignored() -> None:
    setup = "signal.signal(signal.SIGBUS, signal.SIG_IGN)"
    after = "os.kill(os.getpid(), signal.SIGBUS)"
    status, output, _ = guarded_run(setup=setup, after=after)
    assert (status, output.splitlines()[-1]) == (0, "alive")
    status, output, _ = guarded_run(setup=setup, after="view[5000]")
    assert status < 0


def test_install_says_that_it_stands() -> None:
    assert NATIVE.guard.install() is True
