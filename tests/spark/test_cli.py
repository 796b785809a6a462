"""``rocketstore spark``: what the commands print, and what their exit status says."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.dataset
import pytest

import rocketstore
from golden import golden_stores
from rocketstore.cli.demo import spark as demo_spark
from rocketstore.cli.spark import app as spark_commands
from rocketstore.cli.spark import session as spark_session
from rocketstore.errors import RocketStoreError, StoreLockedError
from rocketstore.spark.base import watching
from support.command_line import lines, run

pytestmark = pytest.mark.xdist_group("spark")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return golden_stores.unpack("plain-5.3.3", tmp_path_factory.mktemp("golden"))


@pytest.fixture(scope="module")
def messages(store: Path) -> list[rocketstore.StoredMessage]:
    with rocketstore.open(store) as opened:
        return [message.detach() for message in opened.scan()]


def test_stats(spark: Any, store: Path, messages: list[Any]) -> None:
    rows = lines(run("spark", "stats", store, "--by", "topic"))
    topics = sorted({message.topic for message in messages})
    assert [row["topic"] for row in rows] == topics
    assert sum(row["count"] for row in rows) == len(messages)
    assert sum(row["bytes"] for row in rows) == sum(one.store_size for one in messages)
    (total,) = lines(run("spark", "stats", store, "--by", "", "--measures", "count"))
    assert total == {"count": len(messages)}
    assert spark.range(2).count() == 2  # a session that was there goes on


def test_stats_by_time(spark: Any, store: Path, messages: list[Any]) -> None:
    rows = lines(run("spark", "stats", store, "--by", "tags", "--bucket", "1s"))
    buckets = {message.store_timestamp // 1000 * 1000 for message in messages}
    assert {row["bucket"] for row in rows} == buckets
    table = run("spark", "stats", store, "--format", "table").stdout.splitlines()
    assert table[0].split() == ["topic", "queueId", "count", "bytes"]


def test_export(spark: Any, store: Path, messages: list[Any], tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = ("--topic", "TopicA", "--columns", "body,queueId", "--partition-by", "")
    files = lines(run("spark", "export", store, out, *options))
    wanted = [message for message in messages if message.topic == "TopicA"]
    assert sum(file["rows"] for file in files) == len(wanted)
    table = pyarrow.dataset.dataset([str(out / file["path"]) for file in files]).to_table()
    assert table.column("body").to_pylist() == [message.body for message in wanted]
    again = run("spark", "export", store, out, *options, code=3)
    assert "not empty" in again.stderr
    assert str(out) in again.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "reported"),
    [
        (("stats", "nowhere"), 3, "nowhere"),
        (("stats", "STORE", "--by", "topik"), 2, "topic"),
        (("stats", "STORE", "--bucket", "soon"), 2, "is not a duration"),
        (("export", "STORE", "out", "--columns", "bodi"), 2, "did you mean 'body'"),
        (("export", "STORE", "out", "--split-size", "much"), 2, "is not a size"),
        (("export", "STORE", "out", "--conf", "spark"), 2, "NAME=VALUE"),
        (("replay", "STORE", "out", "--spark-where", "no sql at all"), 2, "Spark"),
        (("export", "STORE", "out", "--on-corruption", "hope"), 2, "hope"),
    ],
)
def test_wrong_arguments(
    spark: Any,
    store: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    code: int,
    reported: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    given = [str(store) if word == "STORE" else word for word in arguments]
    result = run("spark", *given, code=code)
    assert reported in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


def test_replay_writes_a_store(
    spark: Any, store: Path, messages: list[Any], tmp_path: Path
) -> None:
    out = tmp_path / "new"
    # Neither compressed nor part of a transaction that was not committed.
    wanted = [one for one in messages if one.topic == "TopicA" and one.sys_flag & 0xD in (0, 8)]
    options = ("--topic", "TopicA", "--to-topic", "Again", "--spark-where", "sysFlag % 2 = 0")
    for _ in range(2):
        # The second time the name says that it is done already.
        (row,) = lines(run("spark", "replay", store, out, *options, "--once", "first"))
        assert row["messages"] == len(wanted)
    with rocketstore.open(out) as opened:
        written = list(opened.scan())
        assert opened.verify().ok
    assert [(one.body, one.keys, one.tags, one.queue_id) for one in written] == [
        (one.body, one.keys, one.tags, one.queue_id) for one in wanted
    ]
    assert {one.topic for one in written} == {"Again"}
    assert [one.unique_key for one in written] == [one.unique_key for one in wanted]
    assert [one.born_timestamp for one in written] == [one.born_timestamp for one in wanted]


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        ((), None),
        (("--no-queues",), ("index",)),
        (("--no-index",), ("consumequeue",)),
        (("--no-index", "--no-queues"), ()),
    ],
)
def test_fsck_compares_what_can_be_compared(
    arguments: tuple[str, ...], asked: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command asked for queues and index by name, also where nothing was said of them: so
    ``fsck s3://bucket/store`` was always refused, as queues of a remote store cannot be compared.
    """
    reported: list[object] = []

    def fsck(*_: object, cross_check: object, **__: object) -> SimpleNamespace:
        reported.append(cross_check)
        frame = SimpleNamespace(columns=["kind"], dtypes=[("kind", "string")], collect=list)
        return SimpleNamespace(findings=frame, ok=True, finding_counts={}, summary={}, notes=[])

    monkeypatch.setattr(spark_commands, "spark_session", lambda *_, **__: nullcontext())
    monkeypatch.setattr("rocketstore.spark.fsck", fsck)
    run("spark", "fsck", "s3://bucket/store", *arguments)
    assert reported == [asked]


# --- what fails in Spark ----------------------------------------------------------------------


class FakeSparkError(Exception):
    """As PySpark's: the Python traceback of a task, in the message."""

    __module__ = "pyspark.errors.exceptions.captured"


@pytest.mark.parametrize(
    ("text", "kind", "reported"),
    [
        (
            "Job aborted\nTraceback\n  File x\n"
            "rocketstore.errors.CorruptMessageError: log/0 at position 7: bad\n at java",
            RocketStoreError,
            "log/0 at position 7: bad",
        ),
        ("rocketstore.errors.StoreLockedError: in use", StoreLockedError, "in use"),
        ("x\nFileNotFoundError: there is no store\n", RocketStoreError, "there is no store"),
        ("no node\nat java.lang", RocketStoreError, "Spark: no node"),
    ],
)
def test_errors_of_tasks_are_reported_plainly(
    text: str, kind: type[Exception], reported: str
) -> None:
    with pytest.raises(kind) as caught, spark_session.translated():
        raise FakeSparkError(text)
    assert str(caught.value) == reported


def test_other_errors_stay_what_they_are() -> None:
    with pytest.raises(ZeroDivisionError), spark_session.translated():
        raise ZeroDivisionError("by nought")


def test_stages_are_drawn(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": "120"}.items():
        monkeypatch.setenv(name, value)
    with spark_session.drawn_stages() as draw:
        draw([(1, 1, 4)])
        draw([(1, 4, 4), (2, 0, 3)])
        draw([(2, 3, 3)])
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "stage 1" in captured.err
    assert "3/3" in captured.err


def test_stages_of_a_tracker() -> None:
    """One stage has gone when it is asked; then Spark has stopped."""
    gone = RuntimeError("no JVM")

    def info(stage: int) -> Any:
        return None if stage == 3 else SimpleNamespace(numCompletedTasks=stage, numTasks=4)

    tracker = SimpleNamespace(getActiveStageIds=lambda: [3, 2, 1], getStageInfo=info)
    assert watching.running_stages(tracker) == [(1, 1, 4), (2, 2, 4)]
    stopped = SimpleNamespace(getActiveStageIds=lambda: (_ for _ in ()).throw(gone))
    assert watching.running_stages(stopped) == []


def test_a_look_that_fails_is_raised_at_the_end(spark: Any, tmp_path: Path) -> None:
    looks, flag = [], tmp_path / "looked"

    def look(stages: Any) -> None:
        looks.append(stages)
        flag.touch()
        raise ZeroDivisionError("by nought")

    def task(batches: Any) -> Any:
        import time

        deadline = time.monotonic() + 240
        for batch in batches:
            while not flag.exists() and time.monotonic() < deadline:
                time.sleep(0.02)
            yield batch

    with pytest.raises(ZeroDivisionError), watching.watched(spark, look, poll_s=0.01):
        assert spark.range(1).mapInArrow(task, "id bigint").count() == 1
    assert len(looks) == 1


def test_settings_are_pairs() -> None:
    assert spark_session.pairs(None) is None
    assert spark_session.pairs(["a=b=c", " d =e"]) == {"a": "b=c", "d": "e"}


# --- the demo's end ---------------------------------------------------------------------------


def test_the_demo_counts_and_draws(
    spark: Any,
    store: Path,
    messages: list[Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    said: list[tuple[bool, str]] = []
    plot = tmp_path / "folder" / "volume.png"
    demo_spark.run({"the store": store}, plot, lambda holds, text: said.append((holds, text)))
    assert all(holds for holds, _ in said)
    assert f"Spark counts {len(messages)} messages" in said[1][1]
    assert plot.read_bytes().startswith(b"\x89PNG\r\n")
    table = capsys.readouterr().out.split("\n")
    assert table[1].split()[:4] == ["topic", "queues", "messages", "bytes"]
    assert len([line for line in table[2:] if line]) == len({one.topic for one in messages})


def test_a_plot_of_odd_names_and_of_nothing(tmp_path: Path) -> None:
    rows = [(f"_topic${number}", 1000 * number, number + 1) for number in range(12)]
    demo_spark.draw({"a$b_c": rows, "nothing": []}, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 10_000


def test_a_plot_needs_spark() -> None:
    assert "--plot needs --spark" in run("demo", "--plot", "x.png", code=2).stderr


def test_answers_are_json(spark: Any, store: Path) -> None:
    document = json.loads(run("spark", "stats", store, "--by", "topic", "--format", "json").stdout)
    assert {"topic", "count", "bytes"} == set(document[0])
