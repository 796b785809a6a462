"""The contestants: worker processes that obey the same lines, one at a time.

Lines, words separated by spaces; a worker answers each with one line of JSON, in nanoseconds of the
timed part: ``wall``, ``cpu`` (of the calling thread), ``process`` (CPU), and ``count``.

    set PATH                              load a message set
    open FOLDER [async|sync]              create a store; sync: SYNC_FLUSH
    put CALL FIRST COUNT STEP             put messages, STEP made at a time before the clock starts
    put_dispatched CALL FIRST COUNT STEP  each STEP until it is dispatched, too
    put_threads WIDTH FIRST COUNT STEP    each STEP by so many threads
    put_futures WIDTH FIRST COUNT STEP    each STEP by one thread, so many puts under way
    put_beside MOST FIRST COUNT STEP      each STEP while a thread reads it by ``get_message`` of
                                          MOST; ``read``: until it has read all
    dispatched                            wait until the log is dispatched
    end QUEUES                            ``end`` of the log; ``count`` of the messages in queues
    get MOST views|body QUEUES LIMIT      read the queues by ``get_message`` of MOST
    query|find|keys|id|time COUNT         ask for the sampled messages
    scan|scan_body|scan_arrow             read the log (rocketstore only)
    close, reopen FOLDER, rebuild FOLDER  until dispatched; rebuild first deletes queues and index

While one works, the others are stopped by SIGSTOP.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
NATIVE_BASE = ROOT / "src" / "_native" / "base"
BUILD = ROOT / "build" / "race"
TICKS = os.sysconf("SC_CLK_TCK")
#: What a store is given beside the defaults, which are the same: ASYNC_FLUSH, segments of 1 GiB,
#: queue files of 300,000 units, index files of 5,000,000 slots and 20,000,000 entries.
JAVA_SETTINGS = {
    "flushDiskType": "ASYNC_FLUSH",
    "mappedFileSizeCommitLog": str(1 << 30),
    "messageIndexEnable": "true",
    "transientStorePoolEnable": "false",
    "timerWheelEnable": "false",
    "diskMaxUsedSpaceRatio": "99",
    # A slow disk shall make a put slow, and not refuse it.
    "osPageCacheBusyTimeOutMills": "60000",
    "syncFlushTimeout": "60000",
}
OUR_SETTINGS = {
    "flush_disk_type": "ASYNC_FLUSH",
    "mapped_file_size_commit_log": 1 << 30,
    "message_index_enable": True,
    "transient_store_pool_enable": False,
    "sync_flush_timeout": 60_000,
}
JVM_FLAGS = (
    *("-Xms2g", "-Xmx2g", "-XX:+AlwaysPreTouch"),
    # Whatever the disk holds, nothing expires.
    "-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.99",
    "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.99",
)
_PR_SET_PDEATHSIG = 1
C_FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra")


def _end_with_parent() -> None:
    """Let the kernel end a process when its parent ends: a stopped one would stay for ever."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class ContestantError(Exception):
    """A contestant answered with an error or ended; says what it printed last."""


class Contestant:
    """A worker process.

    Parameters
    ----------
    name : str
    command : sequence of str
    scratch : Path
        Folder for what the process prints.
    environment : mapping, optional
        Added to this process's.

    Attributes
    ----------
    trace : bool
        Print each line and the seconds until its answer; of the class.
    """

    trace = False

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        scratch: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self._log = scratch / f"{name.replace(' ', '-')}.stderr"
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, **(environment or {})},
                preexec_fn=_end_with_parent,
            )
        self._answer("start")
        self._pause()

    def _pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def _answer(self, line: str) -> dict[str, Any]:
        assert self._process.stdout is not None
        text = self._process.stdout.readline()
        answer = json.loads(text) if text else {"error": f"ended: {self._process.poll()}"}
        if "error" in answer:
            printed = self._log.read_text(errors="replace").splitlines()[-25:]
            raise ContestantError("\n".join([f"{self.name}: {line}: {answer['error']}", *printed]))
        return answer

    def do(self, line: str) -> dict[str, Any]:
        """Send a line and wait for its answer; the process rests before and afterwards."""
        assert self._process.stdin is not None
        began = time.monotonic()
        self._process.send_signal(signal.SIGCONT)
        try:
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()
            return self._answer(line)
        finally:
            if self._process.poll() is None:
                self._pause()
            if self.trace:
                print(f"{time.monotonic() - began:8.2f} s {self.name}: {line}", file=sys.stderr)

    def cpu_s(self) -> float:
        """CPU seconds of the process so far."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def is_running(self) -> bool:
        """Return whether the process was not ended yet."""
        return self._process.poll() is None

    def kill(self) -> None:
        """End the process at once; an open store becomes the image of a crash."""
        if not self.is_running():
            return
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


def java(version: str, scratch: Path) -> Contestant:
    """RocketMQ ``version`` in a JVM."""
    sys.path.insert(0, str(ROOT / "tests"))
    from interop import maven
    from interop.harness import HERE as INTEROP
    from interop.harness import line_of

    path = maven.class_path(INTEROP / "java" / "pom.xml", version)
    line = INTEROP / "java" / f"line{line_of(version)}"
    classes = maven.compiled(
        [
            *sorted((HERE / "java").glob("*.java")),
            *(HERE / "java" / line.name).glob("*.java"),
            *line.glob("*.java"),
        ],
        path,
        version,
    )
    places = f"{classes}:{INTEROP / 'java' / 'resources'}:{path}"
    settings = [f"{name}={value}" for name, value in JAVA_SETTINGS.items()]
    flags = (*JVM_FLAGS, f"-Duser.home={scratch}", *maven.JVM_OPENS, "-cp", places)
    return Contestant(
        f"jar {version}", ["java", *flags, "rocketstore.interop.Race", *settings], scratch
    )


def ours(version: str, scratch: Path, kernels: str = "native") -> Contestant:
    """This checkout's rocketstore, which writes as RocketMQ ``version``."""
    settings = [f"{name}={value}" for name, value in OUR_SETTINGS.items()]
    paths = [str(ROOT / "src"), str(HERE.parent), os.environ.get("PYTHONPATH", "")]
    return Contestant(
        "rocketstore" if kernels == "native" else kernels,
        [sys.executable, str(HERE / "ours.py"), *settings, f"broker_version={version}"],
        scratch,
        {
            "ROCKETSTORE_KERNELS": kernels,
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        },
    )


def limit(scratch: Path) -> Contestant:
    """The bare loop of ``limits.c``, compiled with the flags of the package but for -O2."""
    program = scratch / "limits"
    flags = [*C_FLAGS, *(["-march=x86-64-v2"] if platform.machine() == "x86_64" else [])]
    command = ["cc", *flags, f"-I{NATIVE_BASE}", str(HERE / "limits.c"), "-o", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ContestantError(f"limits.c cannot be compiled:\n{done.stderr}")
    return Contestant("limit", [str(program)], scratch)
