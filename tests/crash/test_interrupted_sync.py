"""An interrupt right after a failed sync: the store must still report the failure."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

if not sys.platform.startswith("linux"):
    pytest.skip("the library that lets calls fail is for Linux", allow_module_level=True)

from crash.faults import library
from support.own_process import run_python

PROGRAM = """
import contextlib, errno, sys
sys.path.insert(0, sys.argv[2])
import rocketstore
from crash.faults.library import ONCE, Faults
from rocketstore.files import mapped_file

@contextlib.contextmanager
def interrupted(path):
    try:
        yield
    except OSError:
        raise KeyboardInterrupt from None  # as Ctrl-C at this moment

faults = Faults()
faults.watch(sys.argv[1])
store = rocketstore.open(
    sys.argv[1], "x", flush_disk_type=sys.argv[3], start=False,
    mapped_file_size_commit_log=1 << 16, mapped_file_size_consume_queue=2000,
    max_hash_slot_num=50, max_index_num=400,
)
store.put("T", b"first")
store.flush()

def write():
    result = store.put("T", b"lost")
    store.flush()
    print("acknowledged", result.status.name, flush=True)

store.put("T", b"second", wait_store_msg_ok=False)
with contextlib.suppress(KeyboardInterrupt):
    mapped_file.naming, naming = interrupted, mapped_file.naming
    faults.arm(len(faults.points), errno.EIO, ONCE)
    try:
        write()
    finally:
        mapped_file.naming = naming
assert faults.fired.startswith("msync") and "commitlog" in faults.fired, faults.points
for _ in range(3):
    try:
        write()
    except (OSError, rocketstore.ServiceFailedError) as error:
        print(type(error).__name__)
try:
    store.close()
except rocketstore.ServiceFailedError:
    print("closed")
"""


@pytest.mark.parametrize("kernels", ["native", "reference"])
@pytest.mark.parametrize("flush_disk_type", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_the_error_comes_again(tmp_path: Path, flush_disk_type: str, kernels: str) -> None:
    """The interrupt took the error's place on its way up: the next sync of the same pages, which
    the system took for clean, succeeded, and what had never got to the disk was acknowledged."""
    try:
        preloaded = library.build()
    except library.CompilerMissingError as error:
        pytest.skip(str(error))
    tests = Path(__file__).resolve().parents[1]
    done = run_python(
        PROGRAM,
        str(tmp_path / "store"),
        str(tests),
        flush_disk_type,
        LD_PRELOAD=str(preloaded),
        ROCKETSTORE_KERNELS=kernels,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.split("\n")
    assert not any(line.startswith("acknowledged") for line in lines), lines
    assert lines[-2] == "closed"
    assert (tmp_path / "store" / "abort").exists()
