"""The garbage collector frees stores, their answers and views of their segments in any order."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import rocketstore

#: Every kind of object that keeps a segment mapped, in a ring that one collection sees whole, older
#: and younger than what it refers to. Messages hide what they refer to from the collector, so that
#: nothing would be seen beside them: some rings have none.
SCRIPT = """
import gc, sys, warnings
import rocketstore
warnings.simplefilter("ignore", ResourceWarning)
gc.collect()
gc.disable()
for closed, made in ((True, False), (True, True), (False, False)):  # an open one keeps its lock
    store = rocketstore.open(sys.argv[1], mode=sys.argv[2])
    pull = store.get_message("group", "T", 0, 0, 32)
    ring = [pull, iter(pull.messages), store]
    if made:
        ring += [list(pull.messages), store.query_message("T", "k", 9), next(store.scan())]
    ring[:] = ring if closed else reversed(ring)
    ring.append(ring)
    if closed:
        store.close()
    del store, pull, ring
    gc.collect()
print("collected")
"""


@pytest.mark.parametrize("body", ["native", "reference"])
@pytest.mark.parametrize("mode", ["r", "r+"])
def test_an_open_and_a_closed_store(tmp_path: Path, mode: str, body: str) -> None:
    with rocketstore.open(tmp_path / "store", mode="x") as store:
        for number in range(40):
            store.put_message(rocketstore.Message("T", b"body %d" % number, keys=["k"]))
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", SCRIPT, str(tmp_path / "store"), mode],
        env={**os.environ, "ROCKETSTORE_KERNELS": body},
        check=False, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "collected\n"), done.stderr
