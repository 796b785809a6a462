"""The commands that move stores: formats, exit codes, words."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from rocketstore.cli.app import app
from support.command_line import CliRunner
from support.file_trees import tree_of
from support.looked_stores import make_store, open_looked


def run(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_store(tmp_path / "store")


def test_clone_answers_in_every_format(root: Path, tmp_path: Path) -> None:
    code, output, _ = run("clone", root, tmp_path / "a", "-f", "json")
    document = json.loads(output)
    assert (code, document["schema"], document["rows"]) == (0, "rocketstore.clone/1", [])
    assert document["log"] == [0, 32242]
    assert tree_of(tmp_path / "a") == tree_of(root)
    code, output, _ = run("clone", root, tmp_path / "b", "--live", "-f", "ndjson")
    summary = json.loads(output.splitlines()[-1])
    assert (code, summary["kind"], summary["settled"]) == (0, "summary", True)
    code, output, _ = run("clone", root, tmp_path / "c", "--at", 20000, "-f", "csv")
    assert (code, output) == (0, "")  # no finding, no note
    code, output, _ = run("clone", root, tmp_path / "d", "--no-reflink", "-f", "table")
    assert code == 0
    assert "log offsets 0 to 32242" in output
    assert "no findings" in output


def test_clone_refuses(root: Path, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there/file").touch()
    code, _, words = run("clone", root, tmp_path / "there")
    assert code == 4
    assert "it exists" in words
    with open_looked(root, "r+"):
        code, _, words = run("clone", root, tmp_path / "copy")
    assert code == 4
    assert "--live" in words
    code, _, words = run("clone", root, tmp_path / "copy", "--at", 10**9)
    assert code == 2
    assert "the log has offsets" in words
    assert run("clone", tmp_path / "there", tmp_path / "copy")[0] == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store", "there"]


def test_clone_of_a_damaged_store_has_findings(root: Path, tmp_path: Path) -> None:
    with (root / "commitlog" / "0".zfill(20)).open("r+b") as file:
        file.seek(2000)
        file.write(bytes(3000))
    code, output, _ = run("clone", root, tmp_path / "copy", "-f", "table")
    assert code == 1
    assert f"rocketstore doctor {tmp_path / 'copy'}" in output


def test_diff_answers_in_every_format(root: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(root, copy)
    code, output, _ = run("diff", root, copy, "-f", "table")
    assert code == 0
    assert "The stores are equal." in output
    with open_looked(copy, "r+") as store:
        store.put("Orders", b"more", 1)
    code, output, _ = run("diff", root, copy, "-f", "json")
    document = json.loads(output)
    assert (code, document["schema"]) == (1, "rocketstore.diff/1")
    assert (document["state"], document["firstOffset"]) == ("different", 32242)
    assert [row["kind"] for row in document["rows"]] == ["log.end", "queue.range"]
    code, output, _ = run("diff", root, copy, "-f", "ndjson")
    assert code == 1
    assert [json.loads(line)["kind"] for line in output.splitlines()][-1] == "summary"
    code, output, _ = run("diff", root, copy, "-f", "csv", "--only", "queues")
    assert code == 1
    assert output.splitlines()[0] == "kind,where,offset,queueOffset,a,b,text"
    assert len(output.splitlines()) == 2
    code, output, _ = run("diff", root, copy, "-f", "table")
    assert code == 1
    assert "The logs differ from offset 32242 on." in output
    assert run("diff", root, copy, "--only", "keys", "--only", "config")[0] == 0
    assert run("diff", root, copy, "--since", 32242, "--only", "log")[0] == 1


def test_diff_refuses_and_never_calls_the_unreadable_equal(root: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    assert run("diff", root, copy)[0] == 3
    shutil.copytree(root, copy)
    assert run("diff", root, copy, "--only", "nothing")[0] == 2
    code, _, words = run("diff", root, copy, "--since", 10**9)
    assert code == 2
    assert "the logs end at" in words
    for one in (root, copy):
        (one / "commitlog" / "0".zfill(20)).rename(one / "moved")
    with (root / "commitlog" / "16384".zfill(20)).open("r+b") as file:
        file.truncate(8000)
    shutil.copy(root / "commitlog" / "16384".zfill(20), copy / "commitlog")
    code, output, _ = run("diff", root, copy, "-f", "table")
    assert code == 3
    assert "not everything could be read" in output


def test_split_answers_in_every_format(root: Path, tmp_path: Path) -> None:
    code, output, _ = run("split", root, tmp_path / "a", "--topic", "Ord*", "-f", "json")
    document = json.loads(output)
    assert (code, document["schema"]) == (0, "rocketstore.split/1")
    assert (document["topics"], document["messages"]) == (["Orders"], 50)
    assert (tmp_path / "a.map.csv").read_text().startswith("store,oldOffset,newOffset,")
    code, output, _ = run("split", root, tmp_path / "b", "--begin", "1700010000000", "-f", "table")
    assert code == 0
    assert "The new store was verified: no findings." in output
    arguments = ("--topic", "Pays", "--map", tmp_path / "m.csv", "-f", "ndjson")
    code, output, _ = run("split", root, tmp_path / "c", *arguments)
    assert (code, json.loads(output.splitlines()[-1])["map"]) == (0, str(tmp_path / "m.csv"))
    code, _, words = run("split", root, tmp_path / "d", *arguments)
    assert code == 4
    assert "name a new file for the map" in words
    code, _, words = run("split", root, tmp_path / "d")
    assert (code, "nothing is selected" in words) == (2, True)
    assert run("split", root, tmp_path / "c", "--topic", "Pays")[0] == 4
    with open_looked(root, "r+"):
        assert run("split", root, tmp_path / "d", "--topic", "Pays")[0] == 4
    assert run("split", tmp_path / "d", tmp_path / "e", "--topic", "Pays")[0] == 3


def test_an_interrupt_says_how_to_go_on(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = KeyboardInterrupt()
    error.add_note("the logs are equal up to offset 7")

    def interrupt(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("rocketstore.cli.moving.diff.diff_stores", interrupt)
    code, _, words = run("diff", root, root)
    assert code == 130
    assert "equal up to offset 7" in words
    monkeypatch.setattr("rocketstore.cli.moving.split.split_store", interrupt)
    code, _, words = run("split", root, tmp_path / "made", "--topic", "Pays")
    assert code == 130
    assert "the same command goes on" in words


def test_merge_answers_in_every_format(root: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    with open_looked(other) as store:
        store.put("Orders", b"x", 0)
        store.put("Other", b"y", 0)
    code, output, _ = run("merge", root, other, tmp_path / "a", "-f", "json")
    document = json.loads(output)
    assert (code, document["schema"]) == (0, "rocketstore.merge/1")
    assert (document["messagesA"], document["messagesB"], document["sharedQueues"]) == (150, 2, 1)
    assert (tmp_path / "a.map.csv").read_text().count("\n") == 153
    code, output, _ = run("merge", root, other, tmp_path / "b", "-f", "table")
    assert code == 0
    assert "Copied 152 messages" in output
    assert run("merge", root, other, tmp_path / "b")[0] == 4
    assert run("merge", root, root, tmp_path / "c")[0] == 2
    assert run("merge", root, tmp_path / "none", tmp_path / "c")[0] == 3
