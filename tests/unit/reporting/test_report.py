"""``report``: one page that holds what it must, and nothing that runs, loads or deceives."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from pathlib import Path

import pytest

import rocketstore
from golden.golden_stores import NAMES, unpack
from rocketstore.diagnosis.codes import explanation
from rocketstore.errors import MappedFileError
from rocketstore.reporting import report as report_module
from support.command_line import run
from support.looked_stores import make_store, open_looked
from support.report_pages import read_page
from support.shown_store import HOSTILE, make_hostile

HEADINGS = [
    *("Forecast by version", "Findings", "Data lost", "Map of the log", "Volume over time"),
    *("Bytes per topic", "Age", "Lag", "Delays due", "Undecided transactions", "Index health"),
    "Configuration",
]


@pytest.mark.parametrize("name", NAMES)
def test_golden_stores(name: str, tmp_path: Path) -> None:
    store, page = unpack(name, tmp_path), tmp_path / "report.html"
    before = tree(store)
    made = rocketstore.report(store, page)
    assert tree(store) == before
    assert made.nbytes == page.stat().st_size
    assert made.path == str(page)
    assert not made.problems
    found = read_page(page)
    assert found.headings == HEADINGS
    for one in made.verdict.broker:
        assert one.version in found.texts


def tree(root: Path) -> dict[str, tuple[int, int]]:
    return {
        str(path): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in root.rglob("*")
        if path.is_file()
    }


def test_figures_agree_with_the_commands(tmp_path: Path) -> None:
    from rocketstore.looking import du

    store = make_store(tmp_path / "store")
    made = rocketstore.report(store, tmp_path / "r.html", deep=True)
    page = read_page(tmp_path / "r.html")
    rows = du(store, "topic").rows
    for row in rows:
        if row.kind == "messages":
            assert row.key[0] in page.texts
            assert f"{row.messages:,}" in page.texts
    assert made.verdict.level == "deep"
    charts = [kind for kind, *_ in page.svgs]
    assert charts.count("chart") == 1
    assert charts.count("bar") > 10
    _, marks, _ = next(one for one in page.svgs if one[0] == "chart")
    assert marks.count("rect") >= 15  # an hour each


@pytest.mark.parametrize("redact", [False, True])
def test_hostile_names_keys_and_tables_are_text(tmp_path: Path, redact: bool) -> None:
    root = make_hostile(tmp_path / "store")
    page = tmp_path / "r.html"
    rocketstore.report(root, page, title=HOSTILE, redact=redact)
    found = read_page(page)
    content = page.read_text("utf-8")
    assert "<script>alert" not in content
    assert not re.search("[\u202e\u2066\ufeff\x1b\x7f\x00]", content)
    assert "<b onload=x>&'\\u202e\\x1b\\x07" in found.texts
    assert "<svg onload=alert(1)>\\u202e" in found.texts
    assert "G<i>" in found.texts
    assert ("KEY<b>" in found.text) is not redact
    assert ("127.0.0.1" in found.text) is not redact


def test_redacted_values_are_alike_within_one_page_only(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with open_looked(root) as store:
        for _ in range(3):
            store.begin("Orders", b"body", group="G", keys="the-key")
    hashes = []
    for name in ("a.html", "b.html"):
        rocketstore.report(root, tmp_path / name, redact=True)
        found = [
            one for one in read_page(tmp_path / name).texts if re.fullmatch("#[0-9a-f]{12}", one)
        ]
        assert len(found) == 6  # three keys, three hosts
        assert len(set(found)) == 2
        hashes.append(set(found))
    assert hashes[0].isdisjoint(hashes[1])


@pytest.mark.parametrize("folder", ["s", "/".join(["a long name" * 20] * 15)])
def test_damage_is_in_the_page(tmp_path: Path, folder: str) -> None:
    (tmp_path / folder).mkdir(parents=True)
    store = unpack("plain-5.3.3", tmp_path / folder)
    segments = sorted((store / "commitlog").iterdir())
    with open(segments[0], "r+b") as file:
        file.seek(8192)
        file.write(bytes(4096))
    made = rocketstore.report(store, tmp_path / "r.html")
    page = read_page(tmp_path / "r.html")
    assert "log.record.zeros" in page.texts
    assert "damaged" in page.texts
    assert made.verdict.state in ("degraded", "loses")
    assert not made.ok
    (command,) = [one for one in made.verdict.next if "plan" in one.command]
    # Whole wherever it stands, whatever the length of the path: it is for copying.
    assert page.texts.count(shlex.join(command.command)) == 2
    for heading, action in explanation("log.record.zeros", str(store)):
        assert heading in page.texts
        words = action.why[1:]
        assert any(words in one for one in page.texts), words


def test_a_missing_segment_is_on_the_map(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store", 400)
    segments = sorted((store / "commitlog").iterdir())
    segments[1].unlink()
    rocketstore.report(store, tmp_path / "r.html")
    page = read_page(tmp_path / "r.html")
    assert any("missing" in title for _, _, title in page.svgs)


def test_parts_that_cannot_be_read_say_why(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    (store / "config").mkdir(exist_ok=True)
    (store / "config/consumerOffset.json").write_text("{")
    made = rocketstore.report(store, tmp_path / "r.html")
    assert "lag" in made.problems
    assert "index" not in made.problems
    assert any(one.startswith("Not available:") for one in read_page(tmp_path / "r.html").texts)


def test_of_a_bare_log_and_of_nothing(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    bare = shutil.copytree(store / "commitlog", tmp_path / "log")
    made = rocketstore.report(bare, tmp_path / "r.html")
    assert made.problems["lag"] == "only a log was given"
    assert "Orders" in read_page(tmp_path / "r.html").texts
    (tmp_path / "empty").mkdir()
    made = rocketstore.report(tmp_path / "empty", tmp_path / "s.html")
    assert made.verdict.state == "unreadable"
    read_page(tmp_path / "s.html")
    with pytest.raises(FileNotFoundError, match="there is no store"):
        rocketstore.report(tmp_path / "nothing", tmp_path / "t.html")
    assert not (tmp_path / "t.html").exists()


def test_an_empty_store(tmp_path: Path) -> None:
    with open_looked(tmp_path / "store"):
        pass
    made = rocketstore.report(tmp_path / "store", tmp_path / "r.html")
    assert "lag" not in made.problems
    read_page(tmp_path / "r.html")


# --- the file -------------------------------------------------------------------------------------


def test_never_inside_the_store(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    (tmp_path / "link").symlink_to(store / "config", target_is_directory=True)
    (store / "config").mkdir(exist_ok=True)
    (tmp_path / "in.html").symlink_to(store / "checkpoint")
    before = tree(store)
    for place in ("store/r.html", "store/index/r.html", "link/r.html", "in.html"):
        with pytest.raises(MappedFileError, match="inside the store"):
            rocketstore.report(store, tmp_path / place)
    with pytest.raises(MappedFileError, match="inside the store"):
        rocketstore.report(store / "commitlog", store / "r.html")
    with pytest.raises(NotADirectoryError, match="no folder"):
        rocketstore.report(store, tmp_path / "none/r.html")
    assert tree(store) == before


def test_odd_files_are_refused(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    os.mkfifo(tmp_path / "fifo")
    for name in ("fifo", "."):
        with pytest.raises(MappedFileError, match="not a regular file"):
            rocketstore.report(store, tmp_path / name)


def test_a_failed_write_leaves_the_old_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store(tmp_path / "store")
    page = tmp_path / "r.html"
    page.write_text("old")

    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="Input/output"):
        rocketstore.report(store, page)
    assert page.read_text() == "old"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["r.html", "store"]


def test_rows_are_left_out_until_the_page_is_small_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "store"
    with open_looked(root, mapped_file_size_commit_log=1 << 20) as store:
        for number in range(300):
            store.begin("Orders", b"b", group=f"G{number}" + "&" * 100, keys="\x07" * 50)
    rocketstore.report(root, tmp_path / "all.html")
    whole = (tmp_path / "all.html").stat().st_size
    monkeypatch.setattr(report_module, "MAX_NBYTES", whole // 2)
    made = rocketstore.report(root, tmp_path / "r.html")
    assert made.nbytes <= whole // 2
    page = read_page(tmp_path / "r.html")
    assert any(one.endswith("more are not listed.") for one in page.texts)


def test_the_brokers_file(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    file = tmp_path / "broker.conf"
    file.write_text("flushDiskTyp=x\nnamesrvAddr=10.1.2.3:9876,10.1.2.4:9876\n")
    rocketstore.report(store, tmp_path / "r.html", config=file)
    page = read_page(tmp_path / "r.html")
    assert "flushDiskTyp" in page.texts
    assert "dangerous" in page.texts


def test_options_of_the_forecast_have_an_effect(tmp_path: Path) -> None:
    """In the file, in the call and on the command line alike."""
    store = unpack("crash-5.3.3", tmp_path)
    file = tmp_path / "broker.conf"
    file.write_text("messageIndexSafe=true\n")
    by_file = rocketstore.doctor(store, config=file).to_json()["broker"]
    plain = rocketstore.doctor(store).to_json()["broker"]
    options = {"messageIndexSafe": "true"}
    for given, expected in (
        ({}, plain),
        ({"config": file}, by_file),
        ({"broker_options": options}, by_file),
    ):
        made = rocketstore.report(store, tmp_path / "r.html", **given)  # type: ignore[arg-type]
        assert made.verdict.to_json()["broker"] == expected
    rocketstore.report(store, tmp_path / "r.html", broker_versions=["5.1.4"])
    assert "5.1.4" in read_page(tmp_path / "r.html").texts
    run("report", store, "-o", tmp_path / "s.html", "--broker-version", "5.1.4",
        "--broker-option", "messageIndexSafe=true", code=1)  # fmt: skip
    assert "5.1.4" in read_page(tmp_path / "s.html").texts
    run("report", store, "-o", tmp_path / "s.html", "--broker-option", "nonsense", code=2)
    run("report", store, "-o", tmp_path / "s.html", "--broker-version", "one", code=2)
