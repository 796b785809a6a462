"""A real RocketMQ in a process of its own: stores opened, written to, asked, closed or killed."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from interop import maven

HERE = Path(__file__).resolve().parent
VERSIONS = ("4.9.8", "5.1.4", "5.3.3", "5.4.0", "5.5.0")
#: Seconds one answer may take on a busy machine.
DEADLINE_S = 240.0
JVM_FLAGS = (
    *("-Xms64m", "-Xmx768m", "-Xss512k", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
    *("-XX:-UsePerfData", "-Xshare:auto", "-Djava.net.preferIPv4Stack=false"),
    # Whatever the disk holds, nothing expires while a test runs.
    "-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.99",
    "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.99",
)


class DriverError(Exception):
    """The driver did not answer, died, or answered with an error; says what it printed last."""


def line_of(version: str) -> int:
    """The line of a version: 4 or 5."""
    return int(version.split(".")[0])


def command(version: str) -> list[str]:
    """The command that starts the driver of ``version``; compiled when it is not yet."""
    java = HERE / "java"
    path = maven.class_path(java / "pom.xml", version)
    folders = (java / "common", java / f"line{line_of(version)}")
    sources = sorted(source for folder in folders for source in folder.glob("*.java"))
    classes = maven.compiled(sources, path, version)
    everything = f"{classes}:{java / 'resources'}:{path}"
    flags = (*JVM_FLAGS, *maven.JVM_OPENS, "-cp", everything)
    return ["java", *flags, "rocketstore.interop.StoreDriver"]


class Pending:
    """An answer that is to come, and what was acknowledged on the way to it."""

    def __init__(self, driver: Driver, what: str, on_ack: Callable[[], None] | None) -> None:
        self._driver = driver
        self._what = what
        self._on_ack = on_ack
        self._done = threading.Event()
        self._answer: dict[str, Any] | None = None
        #: Answers to the writes of a script, in order, as they were acknowledged.
        self.acks: list[dict[str, Any]] = []

    def take(self, line: dict[str, Any]) -> None:
        """Called by the reading thread with a line of this request."""
        if "ack" in line:
            self.acks.append(line["answer"])
            if self._on_ack is not None:
                self._on_ack()
            return
        self._answer = line
        self._done.set()

    def give_up(self) -> None:
        """Called by the reading thread when no more lines come."""
        self._done.set()

    def result(self, deadline_s: float = DEADLINE_S) -> dict[str, Any]:
        """Wait for the answer; ``DriverError`` when it is an error or does not come."""
        if not self._done.wait(deadline_s):
            raise self._driver.error(f"{self._what}: no answer for {deadline_s:.0f} s")
        if self._answer is None:
            raise self._driver.error(f"{self._what}: the process ended")
        if "error" in self._answer:
            raise self._driver.error(f"{self._what}: {self._answer['error']}")
        return self._answer


class Driver:
    """One Java process with any number of stores of one RocketMQ version.

    Parameters
    ----------
    version : str
    scratch : Path
        Folder for what the process prints; also its home, should RocketMQ write there.
    program : sequence of str, optional
        Command of another driver that speaks the same lines.

    Notes
    -----
    Leaving the context halts the process at once: stores not closed before are crash images.
    """

    def __init__(self, version: str, scratch: Path, program: Sequence[str] | None = None) -> None:
        self.version = version
        scratch.mkdir(parents=True, exist_ok=True)
        self._log = scratch / f"driver-{version}-{time.monotonic_ns()}.stderr"
        java, *flags = program if program is not None else command(version)
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                [java, f"-Duser.home={scratch}", *flags],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=scratch,
            )
        self._lock = threading.Lock()
        self._pending: dict[int, Pending] = {}
        self._next = 0
        self._reader = threading.Thread(target=self._read, name="driver answers", daemon=True)
        self._reader.start()

    def __enter__(self) -> Driver:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.halt()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if not line.endswith(b"\n"):
                break
            answer = json.loads(line)
            self._pending[answer.pop("id")].take(answer)
        with self._lock:
            for pending in self._pending.values():
                pending.give_up()

    def error(self, what: str) -> DriverError:
        """An exception that says what happened and what the process printed last."""
        tail = self._log.read_text(errors="replace").splitlines()[-40:]
        status = self._process.poll()
        state = "running" if status is None else f"ended with status {status}"
        return DriverError("\n".join([f"RocketMQ {self.version} ({state}): {what}", *tail]))

    def _send(self, on_ack: Callable[[], None] | None = None, **request: Any) -> Pending:
        what = f"{request['op']} {request.get('store', '')}"
        pending = Pending(self, what, on_ack)
        with self._lock:
            self._next += 1
            self._pending[self._next] = pending
            line = json.dumps({"id": self._next, **request}) + "\n"
            assert self._process.stdin is not None
            try:
                self._process.stdin.write(line.encode())
                self._process.stdin.flush()
            except OSError as error:
                raise self.error(f"{what}: {error}") from error
        return pending

    def open(
        self,
        store: str,
        root: Path,
        config: Mapping[str, str],
        topics: Mapping[str, Mapping[str, str]] | None = None,
    ) -> Pending:
        """Open the store at ``root`` and call it ``store``."""
        return self._send(
            op="open", store=store, root=str(root), config=dict(config), topics=dict(topics or {})
        )

    def script(
        self,
        store: str,
        writes: Sequence[Mapping[str, Any]],
        on_ack: Callable[[], None] | None = None,
    ) -> Pending:
        """Do ``writes`` in order; with ``on_ack`` each is acknowledged as soon as it is done."""
        acks = on_ack is not None
        return self._send(on_ack, op="script", store=store, writes=list(writes), acks=acks)

    def ask(self, store: str, questions: Sequence[Mapping[str, Any]]) -> Pending:
        """Ask ``questions``; the answers stand under ``answers``."""
        return self._send(op="ask", store=store, questions=list(questions))

    def close(self, stores: Iterable[str]) -> None:
        """Shut down ``stores`` beside one another, and wait for it."""
        for pending in [self._send(op="close", store=store) for store in stores]:
            pending.result()

    def halt(self) -> None:
        """Kill the process, wherever it is."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            try:
                pipe.close()
            except BrokenPipeError:
                # What was to be sent to a process that is no more.
                continue

    def peak_memory_nbytes(self) -> int:
        """Most memory the process had resident so far."""
        text = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(text.split("VmHWM:")[1].split()[0]) * 1024
