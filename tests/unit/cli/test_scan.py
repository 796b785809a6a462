"""``scan``, ``tail`` and what ``find`` shares with them: conditions, places, interruption."""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import rocketstore
from rocketstore.cli.commands import tail as tail_command
from rocketstore.cli.commands import walk
from support.command_line import NASTY_TOPIC, lines, make_store, run


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("scan") / "store")


@pytest.fixture
def root(pristine: Path, tmp_path: Path) -> Path:
    shutil.copytree(pristine, tmp_path / "store")
    return tmp_path / "store"


@pytest.fixture
def damaged(root: Path) -> tuple[Path, int]:
    """A store and the log offset of its one damaged record, that of key k5."""
    (row,) = lines(run("find", root, "-t", "TopicA", "-k", "k5"))
    with open(root / "commitlog" / ("0" * 20), "r+b") as file:
        content = file.read()
        file.seek(content.index(b"body 5"))
        file.write(b"BODY")
    return root, row["physicalOffset"]


def keys(result: Any) -> list[str | None]:
    return [row["keys"] for row in lines(result)]


def test_scan_is_in_log_order_and_whole(pristine: Path) -> None:
    rows = lines(run("scan", pristine))
    with rocketstore.open(pristine) as store:
        assert [row["physicalOffset"] for row in rows] == [
            message.physical_offset for message in store.scan()
        ]
    assert len(rows) == 42


def test_scan_conditions(pristine: Path) -> None:
    rows = lines(run("scan", pristine, "-t", "TopicB", "--topic", NASTY_TOPIC))
    assert [row["topic"] for row in rows] == ["TopicB", NASTY_TOPIC]
    assert keys(run("scan", pristine, "--tags", "Tag1", "--body-contains", "3")) == [
        "k13", "k31", "k34", "k37",
    ]  # fmt: skip
    assert keys(run("scan", pristine, "--key", "k12")) == ["k12"]
    assert len(lines(run("scan", pristine, "-u", "00AA"))) == 1
    times = [row["storeTimestamp"] for row in lines(run("scan", pristine))]
    found = lines(run("scan", pristine, "--begin", times[3], "--end", times[5]))
    assert [row["storeTimestamp"] for row in found] == times[3:5]
    assert "no message meets" in run("scan", pristine, "--key", "none", code=1).stderr


def test_a_body_is_searched_as_bytes(pristine: Path) -> None:
    assert [row["topic"] for row in lines(run("find", pristine, "-b", "binary"))] == ["TopicB"]
    assert keys(run("find", pristine, "-t", "TopicA", "-k", "k7", "-b", "body 7")) == ["k7"]
    run("find", pristine, "-t", "TopicA", "-k", "k7", "-b", "body 8", code=1)


@pytest.mark.parametrize("form", ["table", "ndjson", "csv"])
def test_a_limit_names_the_place_to_go_on(pristine: Path, form: str) -> None:
    every = keys(run("scan", pristine))
    first = run("scan", pristine, "--limit", 17, "-f", form)
    assert "17 written, as --limit says; --start " in first.stderr
    place = first.stderr.rpartition("--start ")[2].split()[0]
    assert keys(run("scan", pristine, "--start", place)) == every[17:]
    assert run("scan", pristine, "--limit", 17, "--quiet").stderr == ""


def test_every_place_of_the_log_goes_on(pristine: Path) -> None:
    """Limits that end at a file's end lead into the next file, and one at the log's end to none."""
    every = keys(run("scan", pristine))
    done: list[str | None] = []
    place = 0
    for _ in range(6):
        part = run("scan", pristine, "--start", place, "--limit", 7)
        done += keys(part)
        place = int(part.stderr.rpartition("--start ")[2].split()[0])
    assert done == every
    run("scan", pristine, "--start", place, code=1)


def test_start_and_stop(pristine: Path) -> None:
    offsets = [row["physicalOffset"] for row in lines(run("scan", pristine))]
    rows = lines(run("scan", pristine, "--start", offsets[4], "--stop", offsets[6]))
    assert [row["physicalOffset"] for row in rows] == offsets[4:6]
    wrong = run("scan", pristine, "--start", offsets[4] + 3, code=2)
    assert f"no record begins at log offset {offsets[4] + 3}" in " ".join(wrong.stderr.split())


def test_damage(damaged: tuple[Path, int]) -> None:
    root, offset = damaged
    failed = run("scan", root, code=3)
    assert keys(failed) == [f"k{number}" for number in range(5)]
    assert f"log offset {offset}: the body's CRC-32" in failed.stderr
    assert "--on-corruption skip" in failed.stderr
    skipped = keys(run("scan", root, "--on-corruption", "skip"))
    assert skipped[:7] == ["k0", "k1", "k2", "k3", "k4", "k6", "k7"]
    assert len(skipped) == 41
    assert keys(run("scan", root, "--on-corruption", "stop")) == keys(failed)
    run("scan", root, "--on-corruption", "perhaps", code=2)


def test_an_interrupted_scan_says_where_to_go_on(
    pristine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = lines(run("scan", pristine))
    scan = rocketstore.DefaultMessageStore.scan

    def interrupted(self: Any, **options: Any) -> Iterator[Any]:
        for number, message in enumerate(scan(self, **options)):
            if number == 9:
                raise KeyboardInterrupt
            yield message

    monkeypatch.setattr(rocketstore.DefaultMessageStore, "scan", interrupted)
    for form in ("ndjson", "table", "json"):
        result = run("scan", pristine, "-f", form, code=130)
        assert f"--start {every[9]['physicalOffset']} continues" in result.stderr
    assert len(json.loads(result.stdout)) == 9
    found = run("find", pristine, "--tags", "Tag2", code=130)
    assert f"--start {every[9]['physicalOffset']} continues" in found.stderr


def test_progress_goes_to_stderr_only_when_somebody_sees_it(pristine: Path) -> None:
    reported: list[tuple[str, int, int]] = []
    with rocketstore.open(pristine) as store:
        conditions = walk.Conditions.of(key="none")
        reading = walk.LogWalk(store, conditions, progress=lambda *what: reported.append(what))
        assert list(reading) == []
        assert reading.position == store.max_physical_offset
    ((what, done, total),) = reported[:1]
    assert (what, total) == ("reading the log", reading.position)
    assert 0 < done <= total
    assert run("scan", pristine).stderr == ""


# --- csv --------------------------------------------------------------------------------------


def test_csv_says_what_ndjson_says(pristine: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(run("scan", pristine, "-f", "csv").stdout)))
    for reported, row in zip(lines(run("scan", pristine)), rows, strict=True):
        for name, value in reported.items():
            if name == "properties":
                assert json.loads(row[name]) == value
            else:
                assert row[name] == ("" if value is None else str(value))
        assert row["body" if "bodyBase64" in reported else "bodyBase64"] == ""


@pytest.mark.parametrize(
    ("command", "names"),
    [
        (("info",), "name,value"),
        (("ls",), "topic,type,queues,messages,files,bytes,allocatedBytes"),
        (("ls", "--files"), "path,kind,bytes,allocatedBytes,firstOffset,endOffset,modified"),
        (("show", "0"), "topic,queueId,queueOffset,physicalOffset"),
        (("get", "TopicA", "0"), "topic,queueId,queueOffset,physicalOffset"),
        (("verify",), ""),
    ],
)
def test_every_command_writes_csv(pristine: Path, command: tuple[str, ...], names: str) -> None:
    text = run(command[0], pristine, *command[1:], "-f", "csv").stdout
    rows = list(csv.reader(io.StringIO(text)))
    assert text.startswith(names)
    assert len({len(row) for row in rows}) <= 1


def test_the_form_may_come_from_the_environment(pristine: Path) -> None:
    text = run("ls", pristine, env={"ROCKETSTORE_FORMAT": "csv"}).stdout
    assert text.startswith("topic,type,queues,")
    text = run("ls", pristine, "-f", "json", env={"ROCKETSTORE_FORMAT": "csv"}).stdout
    assert len(json.loads(text)) == 3


# --- tail -------------------------------------------------------------------------------------


def test_tail_shows_the_newest(pristine: Path) -> None:
    every = lines(run("scan", pristine))
    assert lines(run("tail", pristine)) == every[-10:]
    assert lines(run("tail", pristine, "-n", 3)) == every[-3:]
    assert lines(run("tail", pristine, "-n", 999)) == every
    assert keys(run("tail", pristine, "-n", 2, "--tags", "Tag1")) == ["k34", "k37"]
    assert keys(run("tail", pristine, "-n", 1, "-k", "k0")) == ["k0"]
    assert keys(run("tail", pristine, "-n", 2, "-t", "TopicA")) == ["k38", "k39"]
    assert "no message" in run("tail", pristine, "-t", "None", code=1).stderr
    run("tail", pristine, "-n", 0, code=1)


def test_tail_from_a_place(pristine: Path) -> None:
    every = lines(run("scan", pristine))
    place = every[30]["physicalOffset"]
    assert lines(run("tail", pristine, "--start", place)) == every[30:]
    run("tail", pristine, "--start", place + 1, code=2)
    run("tail", pristine, "--idle", 3, code=2)


@pytest.mark.parametrize("form", ["ndjson", "table", "csv"])
def test_tail_follows_until_interrupted(
    root: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """Waiting is the test's turn: it writes twice, looks at what was shown, and interrupts."""
    turns = iter((b"first new", b"second new", None))
    ends: list[int] = []

    def turn(seconds: float) -> None:
        body = next(turns)
        if body is None:
            raise KeyboardInterrupt
        with rocketstore.open(root, "r+") as store:
            store.put("TopicA", body)
            ends.append(store.max_physical_offset)

    monkeypatch.setattr(tail_command, "time", SimpleNamespace(sleep=turn))
    result = run("tail", root, "-n", 1, "-F", "-f", form, code=130)
    assert result.stdout.index("first new") < result.stdout.index("second new")
    assert f"--start {ends[-1]} continues" in result.stderr


def test_tail_shows_what_it_could_not_show(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def turn(seconds: float) -> None:
        if not (root / "gone").exists():
            (root / "gone").mkdir()
            with rocketstore.open(root, "r+") as store:
                for _ in range(500):
                    store.put("TopicA", b"." * 100)
            for path in sorted((root / "commitlog").iterdir())[:2]:
                path.unlink()
            return
        raise KeyboardInterrupt

    monkeypatch.setattr(tail_command, "time", SimpleNamespace(sleep=turn))
    result = run("tail", root, "-n", 1, "-F", "-t", "Other", code=130)
    assert "were deleted before they were read" in result.stderr


def test_tail_with_a_damaged_record_near_the_end(
    damaged: tuple[Path, int], caplog: pytest.LogCaptureFixture
) -> None:
    root, offset = damaged
    run("tail", root, "-n", 41, code=3)
    result = run("tail", root, "-n", 41, "--on-corruption", "skip")
    assert len(lines(result)) == 41
    assert f"log offset {offset}" in caplog.text
