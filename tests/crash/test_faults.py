"""Every file operation fails once, or from then on: no false acknowledgement, a clear error, a good
store afterwards. ``make faults`` runs all of them, this a part."""

from __future__ import annotations

import json
import random
import sys

import pytest

if not sys.platform.startswith("linux"):
    pytest.skip("the library that lets calls fail is for Linux", allow_module_level=True)

from crash.faults import campaign, library

#: Every kind of operation that the script must have met.
KINDS = {"open", "create", "mkdir", "link", "rename", "unlink", "lock", "ftruncate", "fallocate"}
KINDS |= {"mmap", "msync", "fsync", "pread", "pwrite", "write"}


@pytest.fixture(scope="module", autouse=True)
def _compiler() -> None:
    try:
        library.build()
    except library.CompilerMissingError as error:
        pytest.skip(str(error))


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("body", "runs"), [("native", 90), ("reference", 40)])
def test_no_fault_breaks_a_promise(body: str, runs: int) -> None:
    seed = random.randrange(1 << 32)
    done = campaign.start("--runs", str(runs), "--seed", str(seed), ROCKETSTORE_KERNELS=body)
    assert done.returncode == 0, f"--seed {seed}\n{done.stdout}\n{done.stderr}"
    summary = json.loads(done.stdout.splitlines()[-1])
    assert summary["kernels"] == body
    assert summary["runs"] == runs
    assert set(summary["fired"]) - {"none"} == KINDS
    print(done.stdout)


@pytest.mark.parametrize(
    ("defect", "seen"),
    [
        ("if position > file.flushed_position: file.flushed_position = position", "without a sync"),
        ("try: flush(file, position)\n    except OSError: file.flushed_position = position",
         "although its sync failed"),
        ("try: flush(file, position)\n    except OSError as error:\n"
         "        raise OSError(error.errno, 'something failed') from None",
         "an error without a path"),
    ],
)  # fmt: skip
def test_a_defect_is_seen(defect: str, seen: str) -> None:
    prelude = (
        "from rocketstore.files.mapped_file import MappedFile\n"
        "flush = MappedFile.flush\n"
        f"def defective(file, position):\n    {defect}\n"
        "MappedFile.flush = defective\n"
    )
    done = campaign.start(
        *("--modes", "sync", "--errors", "EIO", "--runs", "60", "--seed", "1"), prelude=prelude
    )
    assert done.returncode == 1
    assert seen in done.stdout + done.stderr
