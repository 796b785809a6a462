"""Java for the tests: class paths resolved by Maven, sources compiled once per version.

Jars come into Maven's own cache, outside the checkout; what is compiled lies in ``build/interop``.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "interop"
#: Seconds a run of Maven or of the compiler may take; the first one fetches about 150 jars.
DEADLINE_S = 900
#: RocketMQ 4.9 unmaps its files through these internals of the Java library.
JVM_OPENS = (
    *("--add-opens=java.base/java.nio=ALL-UNNAMED", "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED"),
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
)


def lacks_java() -> str:
    """Say in one sentence what the real RocketMQ needs and this machine has not; empty: nothing."""
    missing = [name for name in ("java", "javac", "mvn") if shutil.which(name) is None]
    if not missing:
        return ""
    return (
        f"the real RocketMQ cannot run here without {' and '.join(missing)}: install a JDK and "
        "Maven (on Debian `sudo apt-get install default-jdk-headless maven`)"
    )


def require_java() -> None:
    """Skip the calling tests, with one sentence, where there is no JDK or no Maven."""
    if reason := lacks_java():
        pytest.skip(reason, allow_module_level=True)


@contextmanager
def _alone(name: str) -> Iterator[None]:
    """Hold a lock between the processes that run tests."""
    BUILD.mkdir(parents=True, exist_ok=True)
    with open(BUILD / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-30:])
        raise RuntimeError(f"{command[0]} failed with status {done.returncode}:\n{tail}")


def class_path(pom: Path, version: str) -> str:
    """Return the class path of ``pom`` with RocketMQ ``version``; Maven resolves it once."""
    name = hashlib.sha256(pom.read_bytes() + version.encode()).hexdigest()[:12]
    kept = BUILD / version / f"class-path-{name}"
    with _alone(f"class-path-{version}"):
        if not kept.exists() or not all(map(os.path.exists, kept.read_text().split(":"))):
            kept.parent.mkdir(parents=True, exist_ok=True)
            _run(
                [
                    *("mvn", "-q", "-B", "-f", str(pom), f"-Drocketmq.version={version}"),
                    *("dependency:build-classpath", f"-Dmdep.outputFile={kept}.new"),
                ]
            )
            os.replace(f"{kept}.new", kept)
    return kept.read_text()


def compiled(sources: Sequence[Path], path: str, version: str) -> Path:
    """Compile ``sources`` against the class path ``path``; return the folder of the classes."""
    content = hashlib.sha256(path.encode())
    for source in sources:
        content.update(source.name.encode() + source.read_bytes())
    folder = BUILD / version / f"classes-{content.hexdigest()[:12]}"
    with _alone(f"classes-{version}"):
        if not folder.exists():
            scratch = folder.with_suffix(".new")
            shutil.rmtree(scratch, ignore_errors=True)
            scratch.mkdir(parents=True)
            flags = ("-nowarn", "-proc:none", "-encoding", "UTF-8", "-cp", path, "-d", str(scratch))
            _run(["javac", *flags, *map(str, sources)])
            scratch.rename(folder)
    return folder
