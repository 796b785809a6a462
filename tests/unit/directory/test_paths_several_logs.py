"""A log that a broker distributed over several folders: how it is read, what is refused."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import rocketstore
from rocketstore import ConfigError, MappedFileError, MessageStoreConfig
from rocketstore.directory.paths import configured_logs
from support.command_line import run

SEGMENT = 65536
COUNT = 500


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store whose segments are by turns in ``1``, ``2`` and the read-only ``old``."""
    root = tmp_path / "store"
    with rocketstore.open(root, "x", mapped_file_size_commit_log=SEGMENT) as store:
        for number in range(COUNT):
            store.put("T", b"%06d" % number * 100, queue_id=number % 2, keys=f"k{number}")
    folders = [tmp_path / name for name in ("old", "1", "2")]
    for folder in folders:
        folder.mkdir()
    for number, path in enumerate(sorted((root / "commitlog").iterdir())):
        path.rename((folders[0] if number < 2 else folders[1 + number % 2]) / path.name)
    (root / "commitlog").rmdir()
    (tmp_path / "broker.conf").write_text(
        f"storePathCommitLog={tmp_path}/1,{tmp_path}/2\nreadOnlyCommitLogStorePaths={folders[0]}\n"
    )
    return root


def conf(root: Path) -> Path:
    return root.parent / "broker.conf"


def last_line(*words: object, code: int = 0) -> dict[str, object]:
    shown = run(*words, "--format", "ndjson", code=code).stdout.splitlines()
    return dict(json.loads(shown[-1]))


@pytest.mark.parametrize(
    ("log", "read_only", "version", "found"),
    [
        ("/a,/b", None, None, ("/a", "/b")),
        ("/a,,/b,", None, None, ("/a", "/b")),
        (" /a,/b ", None, None, ("/a", "/b")),
        ("/a, /b", None, None, ("/a", " /b")),
        ("/a,/b,/a", "/b,/c", None, ("/a", "/b", "/c")),
        ("/a", "/b", None, ("/a",)),
        ("/a,", "/b", None, ("/a", "/b")),
        (",", None, None, (",",)),
        ("/a,/b", None, "4.9.1", ("/a,/b",)),
        ("/a,/b", None, "4.9.2", ("/a", "/b")),
        (None, "/b", None, ()),
    ],
)
def test_folders_are_divided_as_a_broker_does(
    log: str | None, read_only: str | None, version: str | None, found: tuple[str, ...]
) -> None:
    config = MessageStoreConfig(
        store_path_commit_log=log,
        read_only_commit_log_store_paths=read_only,
        broker_version=version,
    )
    assert configured_logs(config) == found


def test_reading(root: Path) -> None:
    config = MessageStoreConfig.from_properties(conf(root))
    with rocketstore.open(root, config=config) as store:
        assert [int(bytes(one.body[:6])) for one in store.scan()] == list(range(COUNT))
        assert store.get_message("g", "T", 1, 200, 10).messages[0].queue_offset == 200
        (hit,) = store.find(topic="T", key="k77")
        assert int(bytes(hit.body[:6])) == 77
        assert store.verify().ok
        assert store.clean_expired(what_if=True).used_ratio >= 0


def test_a_reader_finds_segments_that_come_to_another_folder(root: Path) -> None:
    both = [*(root.parent / "1").iterdir(), *(root.parent / "2").iterdir()]
    newest = max(both, key=lambda path: path.name)
    other = "1" if newest.parent.name == "2" else "2"
    aside = newest.rename(root.parent / "aside")
    logs = f"{root.parent}/1,{root.parent}/2,{root.parent}/old"
    with rocketstore.open(root, store_path_commit_log=logs) as store:
        before = sum(1 for _ in store.scan(on_corruption="skip"))
        assert before < COUNT
        aside.rename(root.parent / other / newest.name)
        store.refresh()
        assert sum(1 for _ in store.scan()) == COUNT


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("info",), {"refusals": [], "findings": []}),
        (("verify",), {"ok": True, "records": COUNT}),
        (("doctor",), {"state": "well"}),
        (("doctor", "--quick"), {"state": "well"}),
        (("du",), {"messages": COUNT}),
        (("volume",), {"messages": COUNT}),
        (("keys",), {"entries": COUNT}),
        (("plan", "-o", "{tmp}/plan.json"), {"steps": 0}),
        (("export", "{tmp}/out"), {"messages": COUNT}),
        (("split", "{tmp}/part", "--topic", "T"), {"messages": COUNT}),
        (("replay", "{tmp}/replayed"), {"messages": COUNT}),
        (("clone", "{tmp}/copy"), {"state": "done", "damaged": None}),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_commands_that_read(
    root: Path, words: tuple[str, ...], expected: dict[str, object]
) -> None:
    name, *rest = (word.format(tmp=root.parent) for word in words)
    found = last_line(name, root, *rest, "--config", conf(root))
    assert {key: found.get(key) for key in expected} == expected


def test_a_copy_has_one_folder(root: Path) -> None:
    copy = root.parent / "copy"
    run("clone", root, copy, "--config", conf(root))
    assert sorted(os.listdir(copy / "commitlog"))[0] == "0" * 20
    with rocketstore.open(copy, "r+") as store:
        assert store.put("T", b"next", queue_id=0).queue_offset == COUNT // 2
    again = root.parent / "again"
    run("clone", copy, again)
    config = MessageStoreConfig.from_properties(conf(root))
    assert rocketstore.diff(root, again, config=config, config_b=MessageStoreConfig())


@pytest.mark.parametrize("name", ["reindex", "clean", "recover", "salvage"])
def test_commands_that_write_name_the_folders(root: Path, name: str) -> None:
    shown = run(name, root, "--config", conf(root), code=2)
    assert "can be read, but not be written" in shown.stderr
    assert f"3 folders: {root.parent}/1, {root.parent}/2, {root.parent}/old" in shown.stderr


def test_a_folder_that_is_not_mounted(root: Path) -> None:
    (root.parent / "2").rename(root.parent / "unmounted")
    config = MessageStoreConfig.from_properties(conf(root))
    with pytest.raises(MappedFileError, match=r"there is no folder .*/2"):
        rocketstore.open(root, config=config)
    for name in ("verify", "du", "clone", "scan"):
        more = [root.parent / "copy"] if name == "clone" else []
        assert "/2, which" in run(name, root, *more, "--config", conf(root), code=3).stderr
    verdict = last_line("doctor", root, "--config", conf(root), code=1)
    words = [step["why"] for step in verdict["next"]]
    assert words[0].startswith("mount the log's disk")
    assert not any("clone" in one or "salvage" in one for one in words)


def test_a_segment_in_two_folders(root: Path) -> None:
    (root.parent / "1" / ("0" * 20)).write_bytes((root.parent / "old" / ("0" * 20)).read_bytes())
    config = MessageStoreConfig.from_properties(conf(root))
    with pytest.raises(MappedFileError, match="have the same name"):
        rocketstore.open(root, config=config)
    assert "have the same name" in run("du", root, "--config", conf(root), code=3).stderr
    shown = run("doctor", root, "--config", conf(root), "--format", "table", code=1).stdout
    assert "critical store.mixed" in shown


def test_damage_is_for_a_copy(root: Path) -> None:
    segment = min((root.parent / "2").iterdir(), key=lambda path: path.name)
    with open(segment, "r+b") as file:
        file.seek(2000)
        file.write(bytes(3000))
    for name in ("doctor", "verify"):
        shown = run(name, root, "--config", conf(root), "--format", "table", code=1).stdout
        assert "rocketstore clone" in shown
        assert "rocketstore salvage" not in shown
    copy, plan = root.parent / "copy", root.parent / "plan.json"
    run("clone", root, copy, "--config", conf(root), code=1)
    run("plan", copy, "-o", plan, code=1)
    run("repair", copy, "--plan", plan)
    assert rocketstore.doctor(copy).state in ("well", "degraded")
    run("verify", copy)


def test_a_log_below_a_link(tmp_path: Path) -> None:
    # It was refused: "a symbolic link, outside the store".
    (tmp_path / "disk" / "log").mkdir(parents=True)
    (tmp_path / "data").symlink_to(tmp_path / "disk")
    log = str(tmp_path / "data" / "log")
    with rocketstore.open(tmp_path / "s", "a", store_path_commit_log=log) as store:
        store.put("T", b"x")
    with rocketstore.open(tmp_path / "s", store_path_commit_log=log) as store:
        assert sum(1 for _ in store.scan()) == 1
    assert rocketstore.doctor(tmp_path / "s", store_path_commit_log=log).state == "well"


def test_spark_commands_name_it(root: Path) -> None:
    shown = run("spark", "stats", root, "--config", conf(root), code=2)
    assert "is not read by Spark" in shown.stderr


def test_the_error_names_the_option(root: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        rocketstore.open(root, "r+", config=MessageStoreConfig.from_properties(conf(root)))
    assert caught.value.key == "store_path_commit_log"
