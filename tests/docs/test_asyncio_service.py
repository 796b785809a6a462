"""The service on its page: a process that acknowledges lines, and stops when it is asked to."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import rocketstore
from docs.examples import ROOT, examples
from support.rooms import room_of
from support.waiting import Call

PAGE = ROOT / "docs" / "guide" / "asyncio-service.md"
PROGRAM = next(iter(examples(PAGE))).code

posix = pytest.mark.skipif(sys.platform == "win32", reason="stores are only read there")


class Service:
    """A running service, and its clients' acknowledged lines by queue offset."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        for line in self._log():
            if found := re.search(r"listening on port (\d+)", line):
                self.port = int(found[1])
                break

    def _log(self) -> Iterator[str]:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)
            yield line

    def send(self, name: str, count: int) -> dict[int, str]:
        """Send lines until so many are acknowledged, or the service ends."""
        acknowledged = {}
        with socket.create_connection(("127.0.0.1", self.port), 60) as client:
            answers = client.makefile("r")
            for number in range(count):
                line = f"{name} {number}"
                try:
                    client.sendall(f"{line}\n".encode())
                    answer = answers.readline()
                except ConnectionError:
                    break
                if not answer.endswith("\n"):
                    break
                acknowledged[int(answer)] = line
        return acknowledged

    def rest(self) -> int:
        """Read the log to its end; return the exit status."""
        for _ in self._log():
            pass
        return self.process.wait(60)


@contextmanager
def running(folder: Path) -> Iterator[Service]:
    program = folder / "service.py"
    program.write_text(PROGRAM, encoding="utf-8")
    source = str(Path(rocketstore.__file__).parents[1])
    with subprocess.Popen(
        [sys.executable, str(program), str(folder / "store"), "0"],
        stderr=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": source, "PATH": ""},
    ) as process:
        try:
            yield Service(process)
        finally:
            process.kill()


def stored(folder: Path) -> dict[int, str]:
    """The lines in the store by queue offset."""
    with rocketstore.open(folder / "store") as store:
        assert store.recovery_report.clean
        assert store.verify().ok
        return {message.queue_offset: message.body.decode() for message in store.scan()}


@posix
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_every_acknowledged_line_is_in_the_store(tmp_path: Path, number: int) -> None:
    with running(tmp_path) as service:
        first = service.send("first", 20)
        assert len(first) == 20
        calls = [Call(service.send, f"client-{client}", 1_000_000) for client in range(3)]
        second = service.send("second", 20)
        service.process.send_signal(number)
        assert service.rest() == 0
        acknowledged = first | second
        for call in calls:
            acknowledged |= call.result()
    assert len(acknowledged) > 40
    found = stored(tmp_path)
    assert found.items() >= acknowledged.items()
    assert not (tmp_path / "store" / "abort").exists()
    log = "".join(service.lines)
    assert "INFO:lines:line 0: first 0" in log
    assert "INFO:lines:stopped" in log
    assert "Traceback" not in log


@posix
def test_lines_that_were_acknowledged_before_a_kill_are_there_after_a_start(tmp_path: Path) -> None:
    with running(tmp_path) as service:
        before = service.send("before", 30)
        service.process.kill()
    with running(tmp_path) as service:
        after = service.send("after", 5)
        service.process.send_signal(signal.SIGTERM)
        assert service.rest() == 0
    assert stored(tmp_path) == before | after


def test_the_program_is_as_short_as_its_page_says() -> None:
    lines = [line for line in PROGRAM.splitlines() if line.strip()]
    assert len(lines) <= 50


def test_every_room_that_logs_is_on_the_page() -> None:
    package = ROOT / "src" / "rocketstore"
    logging = [
        path
        for path in package.rglob("*.py")
        if "logging.getLogger(__name__)" in path.read_text(encoding="utf-8")
    ]
    names = {".".join(path.relative_to(package.parent).with_suffix("").parts) for path in logging}
    rooms = {f"rocketstore.{room_of(name)}" for name in names}
    listed = re.findall(r"^\| `(rocketstore\.\w+)` \|", PAGE.read_text("utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(rooms)
