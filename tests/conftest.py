"""Fixtures shared by all tests."""

from __future__ import annotations

import importlib.util
import logging
import os
import signal
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from support import lost_processes
from support.kernel_bodies import Bodies

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell lets what it starts in the background ignore interrupts, which tests send.
    signal.signal(signal.SIGINT, signal.default_int_handler)

if importlib.util.find_spec("hypothesis") is not None:
    # No test hangs on the time an example takes: pytest's own limit bounds the whole of it.
    from hypothesis import settings

    settings.register_profile("rocketstore", deadline=None)
    settings.load_profile("rocketstore")

#: ``ROCKETSTORE_REQUIRE=all`` turns every skip into a failure: there everything must run.
REQUIRE_ALL = os.environ.get("ROCKETSTORE_REQUIRE", "") == "all"
#: How the reason of a skip begins that no installation could mend, such as a kernel without loop
#: devices: it is no failure, but a sentence at the end of the run.
IMPOSSIBLE = "impossible on this machine: "


def _fail_skip(report: Any) -> Any:
    if REQUIRE_ALL and report.outcome == "skipped" and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        if IMPOSSIBLE in str(reason):
            return report
        report.outcome = "failed"
        report.longrepr = f"ROCKETSTORE_REQUIRE=all allows no skip: {reason}"
    return report


def pytest_configure(config: pytest.Config) -> None:
    """End a run when one of its processes dies or hangs."""
    config.pluginmanager.register(lost_processes)


def pytest_sessionstart() -> None:
    """Install the handler of SIGBUS over pytest's again, if a conftest imported it before."""
    guard = sys.modules.get("rocketstore._native.guard")
    if guard is not None:
        guard.install()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    """Fail skipped tests where everything is required."""
    report = _fail_skip((yield))
    # Names from the disk may hold what is no text; such a report would not pass between processes.
    report.sections = [
        (title, content.encode("utf-8", "backslashreplace").decode())
        for title, content in report.sections
    ]
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, Any, Any]:
    """Fail skipped test files where everything is required."""
    return _fail_skip((yield))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say what could not be tried here."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = {str(report.longrepr[2]) for report in skipped if isinstance(report.longrepr, tuple)}
    for reason in sorted(reason for reason in reasons if IMPOSSIBLE in reason):
        terminalreporter.write_line(reason)


def pytest_report_header() -> str:
    """Say which rocketstore is tested, without importing it yet."""
    spec = importlib.util.find_spec("rocketstore")
    return f"rocketstore: {spec.origin if spec else 'not found'}"


@pytest.fixture(params=["native", "reference"])
def kernels(request: pytest.FixtureRequest) -> Bodies:
    """The kernel modules of one body: ``kernels.message.crc32`` and so on; runs a test on both."""
    return Bodies(request.param)


@pytest.fixture(params=["index check beside the log's", "index check in turn"])
def index_check(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways in which the newest index file may be checked when a store is opened."""
    least = 1 if "beside" in request.param else 1 << 31
    monkeypatch.setattr("rocketstore.recovery.index.WORTH_A_THREAD", least)


@pytest.fixture(autouse=True)
def _half_full_disks(monkeypatch: pytest.MonkeyPatch) -> None:
    """How full this machine's disk is decides no test; one that is about that asks otherwise."""
    from support.half_full_disk import half_full

    monkeypatch.setattr("rocketstore.files.disk_space.disk_space", half_full)


@pytest.fixture(autouse=True)
def _loggers_of_a_library() -> None:
    """Take back what the command line does to loggers when a test runs it in its own process."""
    logging.captureWarnings(False)
    ours = [name for name in logging.root.manager.loggerDict if name.startswith("rocketstore.")]
    for name in ("rocketstore", "py.warnings", *ours):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
        logger.setLevel(logging.NOTSET)


@pytest.fixture
def disk_path() -> Iterator[Path]:
    """A folder on a disk, for what only a disk has: ``tmp_path`` may lie in memory."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        yield Path(name)
