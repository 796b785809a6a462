"""The pytest plugin ``rocketstore.testing``, as a project that uses it loads it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import rocketstore
from rocketstore.testing.fixtures import SMALL_FILES

CONFTEST = 'pytest_plugins = ["rocketstore.testing"]\n'
PASSING = """
import pytest
import rocketstore

def test_put_and_reopen(rocket_store, tmp_path):
    with rocket_store() as store:
        assert store.put("T", b"one", 0, None, "k").ok
    again = rocket_store(mode="r+")
    assert again.put("T", b"two").ok
    assert again.wait_dispatched(120)
    assert [m.body for m in again.find(topic="T")] == [b"one", b"two"]

def test_without_index(rocket_store):
    rocket_store("other", message_index_enable=False).put("T", b"one", 0, None, "k")

def test_kept(golden_store):
    with rocketstore.open(golden_store("kept"), "r+") as store:
        assert [m.body for m in store.scan()] == [b"kept"]
        store.put("T", b"more")
    assert golden_store("kept") != golden_store("kept.tar")
    with rocketstore.open(golden_store("kept.tar")) as store:
        assert [m.body for m in store.scan()] == [b"kept"]
    with pytest.raises(FileNotFoundError, match="no golden store"):
        golden_store("nowhere")
"""
FAILING = """
def test_spoils_its_store(rocket_store, tmp_path):
    with rocket_store() as store:
        store.put("T", b"one", 0, None, "k")
        assert store.wait_dispatched(120)
    next((tmp_path / "store" / "consumequeue" / "T" / "0").iterdir()).unlink()
"""
CONSUMING = """
import rocketstore

def test_next(rocket_store, rocket_consumer):
    store = rocket_store()
    for number in range(5):
        store.put("T", b"%d" % number)
    consumer = rocket_consumer(store, "g", ["T"], drained=True)
    assert [m.body for m in consumer] == [b"0", b"1", b"2", b"3", b"4"]

def test_left_on_purpose(rocket_store, rocket_consumer):
    store = rocket_store()
    store.put("T", b"0")
    first = rocket_consumer(store, "g", "T", ack="manual", max_reconsume_times=0)
    assert [m.body for m in first] == [b"0"]
    first.close()
    again = rocket_consumer(store, "g", "T", idle_timeout_s=0.01)
    assert [m.body for m in again] == [b"0"]

def test_mode_r(rocket_store, rocket_consumer):
    rocket_store().put("T", b"0")
    reading = rocket_store(mode="r")
    assert [m.body for m in rocket_consumer(reading, "g", "T", drained=True)] == [b"0"]
"""
FORGETTING = """
def test_forgets_one(rocket_store, rocket_consumer):
    store = rocket_store()
    for number in range(3):
        store.put("T", b"%d" % number)
    consumer = rocket_consumer(
        store, "g", "T", ack="manual", max_reconsume_times=0, drained=True
    )
    for number, message in enumerate(consumer):
        if number != 1:
            consumer.ack(message)

def test_closes_it(rocket_store, rocket_consumer):
    rocket_consumer(rocket_store(), "g", "T", drained=True).close()
"""


def run_pytest(folder: Path, program: str) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_it.py").write_text(program)
    source = Path(rocketstore.__file__).parents[1]
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull,
         f"--rootdir={folder}", "-W", "error", str(folder / "test_it.py")],
        env={**os.environ, "PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )  # fmt: skip


def test_fixtures_open_close_and_copy(tmp_path: Path) -> None:
    with rocketstore.open(tmp_path / "kept", "x", **SMALL_FILES) as store:
        store.put("T", b"kept")
    subprocess.run(["tar", "cf", "kept.tar", "kept"], cwd=tmp_path, check=True)
    done = run_pytest(tmp_path, PASSING)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout


def test_a_spoiled_store_is_an_error(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, FAILING)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 passed, 1 error" in done.stdout
    assert "invariant 3" in done.stdout


def test_consumers_are_closed(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, CONSUMING)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout


def test_messages_that_are_not_settled_are_an_error(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, FORGETTING)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "2 passed, 2 errors" in done.stdout
    assert "the group g has not settled T 0: 2 from offset 1 on" in done.stdout
    assert "the consumer of the group g was closed in the test" in done.stdout


def test_the_example_of_the_guide(tmp_path: Path) -> None:
    guide = (Path(__file__).parents[3] / "docs" / "guide" / "testing.md").read_text()
    (program,) = re.findall(r"^```\n(def bill\(.*?)^```$", guide, re.DOTALL | re.MULTILINE)
    done = run_pytest(tmp_path, program)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
    done = run_pytest(tmp_path, program.replace("consumer.ack(order)", "pass"))
    assert "1 passed, 1 error" in done.stdout
