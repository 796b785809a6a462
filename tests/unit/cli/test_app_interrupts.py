"""Ctrl-C while rows are written: each row is whole, appears once, and ``--start`` continues after
it.

``tail --follow`` once wrote a row twice. Standard output had a ``write`` in Python below its
buffer: an interrupt inside it, after the bytes were written, left them in the buffer too.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import rocketstore
from rocketstore.cli.common.streams import HeldInterrupt
from support.command_line import COMMAND, ENVIRONMENT

#: Interrupts itself whenever a function of ``streams`` returns.
INTERRUPTED = """
import os, signal, sys
from rocketstore.cli.common import streams
streams.prepare_streams()
def hook(frame, event, arg):
    if event == "return" and frame.f_code.co_filename == streams.__file__:
        sys.settrace(None)
        os.kill(os.getpid(), signal.SIGINT)
    return hook
for number in range(3):
    text = "x" * int(sys.argv[1]) + f"{number}\\n"
    sys.settrace(hook)
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except KeyboardInterrupt:
        pass
    sys.settrace(None)
sys.stdout.flush()
"""


@pytest.mark.parametrize("length", [1, 100, 8190, 8192, 20_000])
def test_an_interrupt_while_bytes_are_written_writes_none_twice(length: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, str(length)], capture_output=True, env=ENVIRONMENT
    )
    rows = [b"x" * length + b"%d\n" % number for number in range(3)]
    assert (done.returncode, done.stdout, done.stderr) == (0, b"".join(rows), b"")


@pytest.mark.parametrize("form", ["ndjson", "csv", "json"])
def test_rows_of_an_interrupted_follower_are_whole(tmp_path: Path, form: str) -> None:
    with rocketstore.open(tmp_path / "s", "x", mapped_file_size_commit_log=1 << 20) as store:
        for number in range(2000):
            store.put("T", b"x" * 50, keys=f"k{number}")
    command = [*COMMAND, "tail", str(tmp_path / "s"), "--start", "0", "--follow", "-f", form]
    # No buffer of ours: what it had taken would be missing from what communicate returns.
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT, bufsize=0
    ) as process:
        assert process.stdout is not None
        output = process.stdout.read(1)
        time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=60)
    output += rest
    assert process.returncode == 130
    if form == "csv":
        places = [int(line.split(",")[3]) for line in output.decode().splitlines()[1:]]
        assert output.endswith(b"\n")
    else:
        text = output.decode() if form == "json" else f"[{','.join(output.decode().splitlines())}]"
        places = [row["physicalOffset"] for row in json.loads(text)]
    wanted = re.search(rb"--start (\d+) continues", errors)
    assert wanted is not None
    with rocketstore.open(tmp_path / "s") as store:
        all_places = [message.physical_offset for message in store.scan()]
    assert places == [place for place in all_places if place < int(wanted[1])]


def interrupt_twice(interrupt: HeldInterrupt, reached: list[int]) -> None:
    with interrupt.held():
        for number in range(2):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)
            reached.append(number)


def interrupt_once(interrupt: HeldInterrupt, reached: list[int]) -> None:
    with interrupt.held():
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)
        reached.append(0)


def interrupt_between(interrupt: HeldInterrupt, reached: list[int]) -> None:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(1)
    reached.append(0)


@pytest.mark.parametrize(
    ("act", "steps"), [(interrupt_once, 1), (interrupt_twice, 1), (interrupt_between, 0)]
)
def test_the_first_interrupt_waits_for_the_row_and_the_second_does_not(
    act: Callable[[HeldInterrupt, list[int]], None], steps: int
) -> None:
    reached: list[int] = []
    with HeldInterrupt() as interrupt, pytest.raises(KeyboardInterrupt):
        act(interrupt, reached)
    assert len(reached) == steps
