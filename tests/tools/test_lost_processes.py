"""A test that ends or blocks its process: three processes at once waited for it for ever."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

if sys.platform == "win32":
    pytest.skip("signals", allow_module_level=True)

TESTS = Path(__file__).resolve().parents[1]
CONFTEST = f"""
import sys
sys.path.insert(0, {str(TESTS)!r})
from support import lost_processes
lost_processes.GRACE_S = 1.0
def pytest_configure(config):
    config.pluginmanager.register(lost_processes)
"""
HEAD = """
import ctypes, os, pytest, signal, threading, time
"""
GOOD = """
@pytest.mark.parametrize("n", range(9))
def test_good(n):
    time.sleep(0.01)
"""
#: Marks and body of a test that ends its process, or never lets go of it.
IN_GROUP = "@pytest.mark.xdist_group('together')\n"
DEAF = "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32))"
DEADLY = {
    "abort": ("", "os.abort()"),
    "end": (IN_GROUP, "os._exit(0)"),
    "signal": (IN_GROUP, "os.kill(os.getpid(), signal.SIGKILL)"),
    "memory": ("", "ctypes.string_at(8)"),
    "thread": (IN_GROUP, "threading.Timer(0.1, os.abort).start(); time.sleep(1)"),
    "hang without the GIL": (IN_GROUP, f"{DEAF}; ctypes.CDLL(None).sleep(600)"),
    "hang with the GIL": ("", f"{DEAF}; ctypes.PyDLL(None).sleep(600)"),
}


def run(folder: Path, source: str, *arguments: str) -> tuple[int, str]:
    """Run pytest on a file; a run that waits for ever fails the test."""
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "pytest.ini").write_text("[pytest]\ntimeout = 2\n")
    (folder / "test_it.py").write_text(HEAD + source + GOOD)
    plugins = ["-p", "xdist", "-p", "pytest_timeout", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugins, *arguments, str(folder)],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=folder,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("kind", DEADLY)
def test_a_process_that_is_lost_ends_the_run(kind: str, tmp_path: Path) -> None:
    mark, body = DEADLY[kind]
    source = f"{mark}def test_before(): pass\n{mark}def test_deadly():\n    {body}\n"
    source += f"{mark}def test_following(): pass\n"
    code, reported = run(tmp_path, source, "-n", "2", "--dist", "loadgroup")
    assert code == 1, reported
    assert re.search(r"process gw\d died while it ran \S*test_deadly", reported), reported
    assert "FAILED" in reported, reported


@pytest.mark.parametrize(
    "source",
    [
        "@pytest.fixture(scope='session')\ndef s():\n    yield\n    os.abort()\n"
        "def test_with(s): pass\n",
        "if os.environ.get('PYTEST_XDIST_WORKER') == 'gw1': os.abort()\n",
    ],
    ids=["last teardown", "collection"],
)
def test_a_process_lost_at_another_moment_ends_the_run(source: str, tmp_path: Path) -> None:
    code, reported = run(tmp_path, source, "-n", "2", "--dist", "loadgroup")
    assert code == 1, reported
    assert re.search(r"process gw\d died while it ran ", reported), reported


def test_a_hanging_test_ends_a_run_of_one_process(tmp_path: Path) -> None:
    _, body = DEADLY["hang with the GIL"]
    code, reported = run(tmp_path, f"def test_deadly():\n    {body}\n", "-n", "0")
    assert code == 1, reported
    assert "in test_deadly" in reported


@pytest.mark.parametrize("processes", ["0", "2"])
def test_a_run_with_failures_and_long_tests_goes_on(processes: str, tmp_path: Path) -> None:
    source = (
        "def test_slow(): time.sleep(9)\n"
        "def test_bad(): assert 0\n"
        "@pytest.mark.timeout(0)\n"
        "def test_long(): ctypes.PyDLL(None).sleep(4)\n"
    )
    code, reported = run(tmp_path, source, "-n", processes)
    assert code == 1, reported
    assert "2 failed, 10 passed" in reported, reported


def test_a_child_of_a_test_may_watch_itself(tmp_path: Path) -> None:
    """It waited for ever for the thread that watches the test, which no child has."""
    source = (
        "import faulthandler\n"
        "def test_child():\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        faulthandler.dump_traceback_later(9)\n"
        "        os._exit(5)\n"
        "    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5\n"
        "def test_deadly():\n"
        "    if not os.fork(): os._exit(0)\n"
        f"    {DEADLY['hang with the GIL'][1]}\n"
    )
    code, reported = run(tmp_path, source, "-n", "0")
    assert code == 1, reported
    assert "in test_deadly" in reported, reported
