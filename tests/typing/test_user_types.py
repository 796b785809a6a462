"""A user's typed program: what is right passes mypy and pyright, what is wrong does not."""

from __future__ import annotations

import dataclasses
import inspect
import json
import os
import subprocess
import sys
from pathlib import Path

import rocketstore
from rocketstore import kernels
from rocketstore.arguments import StoreOptions
from rocketstore.config import MessageStoreConfig
from rocketstore.message import PutCall, PutOptions

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "tests" / "typing" / "user_calls.py"


def checked(*command: str | Path) -> None:
    """Run a checker of this environment; it must find nothing."""
    environment = {**os.environ, "MYPYPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_mypy(tmp_path: Path) -> None:
    checked("mypy", "--cache-dir", tmp_path, PROGRAM)


def test_pyright(tmp_path: Path) -> None:
    configuration = {
        "include": [str(PROGRAM)],
        "extraPaths": [str(ROOT / "src")],
        "typeCheckingMode": "standard",
        "pythonVersion": "3.12",
        "enableTypeIgnoreComments": False,
        "reportUnnecessaryTypeIgnoreComment": "error",
        "reportMissingModuleSource": "none",
    }
    path = tmp_path / "pyrightconfig.json"
    path.write_text(json.dumps(configuration))
    checked("basedpyright", "-p", path, "--pythonpath", sys.executable)


def test_put_is_declared_as_the_appender_s() -> None:
    """``PutCall`` and ``PutOptions`` say a second time what ``put`` takes."""
    kernel = inspect.signature(kernels.commit_log.Appender.put).parameters.values()
    wanted = [(one.name, one.kind, one.default) for one in kernel if one.name != "_wait"]
    call = inspect.signature(PutCall.__call__).parameters.values()
    assert [(one.name, one.kind, one.default) for one in call] == wanted
    by_name = [name for name, kind, _ in wanted if kind is inspect.Parameter.KEYWORD_ONLY]
    assert list(PutOptions.__annotations__) == by_name


def test_dir_shows_what_there_is() -> None:
    assert set(dir(rocketstore)) == {*rocketstore.__all__, "__version__"}
    assert all(hasattr(rocketstore, name) for name in dir(rocketstore))


def test_options_are_those_of_the_configuration() -> None:
    """``StoreOptions`` says a second time what the configuration's fields are."""
    fields = {field.name: field.type for field in dataclasses.fields(MessageStoreConfig)}
    options = {name: str(kind) for name, kind in StoreOptions.__annotations__.items()}
    assert list(options) == list(fields)
    narrower = {"flush_disk_type", "broker_role"}
    for name, kind in fields.items():
        assert name in narrower or f"ForwardRef({kind!r}" in options[name], name
