"""A plugin: a test process that dies or hangs ends the run, which names the test.

Without it pytest-xdist starts another process, and gives it the same test again as long as groups
are kept together: the run never ends. A test that hangs inside C code hears no signal of
pytest-timeout.
"""

from __future__ import annotations

import faulthandler
import os
import time
from collections.abc import Iterator
from typing import Any

import pytest

#: How long a test may take longer than pytest-timeout allows before its process is ended.
GRACE_S = 60.0
_DESCRIPTOR = pytest.StashKey[int]()
_LOST = pytest.StashKey[str]()


def pytest_configure(config: pytest.Config) -> None:
    """Keep standard error as it is without capturing, and start no process for one that died."""
    capture = config.pluginmanager.getplugin("capturemanager")
    if capture is None:
        config.stash[_DESCRIPTOR] = os.dup(2)
    else:
        with capture.global_and_fixture_disabled():
            config.stash[_DESCRIPTOR] = os.dup(2)
    if hasattr(config.option, "maxworkerrestart"):
        config.option.maxworkerrestart = "0"


def pytest_unconfigure(config: pytest.Config) -> None:
    """Give back what was kept."""
    os.close(config.stash[_DESCRIPTOR])


# --- a process that dies ----------------------------------------------------------------------


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """End the run when a process of pytest-xdist was lost, once its test has been reported."""
    runs = session.config.pluginmanager.getplugin("dsession")
    if runs is None:
        return
    report_it = runs.worker_errordown

    def errordown(node: Any, error: object) -> None:
        report_it(node=node, error=error)
        if error != "keyboard-interrupt":
            during = session.config.stash.get(_LOST, "no test")
            pytest.exit(f"process {node.gateway.id} died while it ran {during}", returncode=1)

    runs.worker_errordown = errordown


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(crashitem: str, sched: Any) -> None:
    """Keep the name of the test that a lost process ran."""
    sched.config.stash[_LOST] = crashitem


# --- a process that hangs ---------------------------------------------------------------------


def limit_of(item: pytest.Item) -> float:
    """Seconds that pytest-timeout gives to a test; 0 for any number, or without that plugin."""
    if not hasattr(item.config.option, "timeout"):
        return 0.0
    marker = item.get_closest_marker("timeout")
    if marker is not None:
        return float(marker.args[0] if marker.args else marker.kwargs.get("timeout") or 0)
    given = item.config.option.timeout
    return float(item.config.getini("timeout") or 0 if given is None else given)


#: When this process is to be ended (monotonic), and where its stacks go.
_armed: tuple[float, int] | None = None


def _arm() -> None:
    if _armed is not None:
        until, descriptor = _armed
        left = max(until - time.monotonic(), 0.1)
        faulthandler.dump_traceback_later(left, exit=True, file=descriptor)


def _forget() -> None:
    global _armed
    _armed = None


# A child has no such thread, and one that asks for its own would wait for this one for ever.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=lambda: faulthandler.cancel_dump_traceback_later() if _armed else None,
        after_in_parent=_arm,
        after_in_child=_forget,
    )


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """End this process when a test takes far too long: a thread of faulthandler's needs no Python.

    pytest-timeout fails the test before, unless it hangs where no signal handler can run.
    """
    global _armed
    limit = limit_of(item)
    if limit:
        _armed = (time.monotonic() + limit + GRACE_S, item.config.stash[_DESCRIPTOR])
        _arm()
    try:
        return (yield)
    finally:
        if _armed is not None:
            faulthandler.cancel_dump_traceback_later()
            _forget()
