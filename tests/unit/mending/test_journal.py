"""The journal of a repair: whole lines count, half ones never happened."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketstore.errors import MappedFileError
from rocketstore.mending.journal import JOURNAL_FILE, Journal


def test_lines_are_found_again(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    assert journal.lines == []
    journal.write("building", rootTime=5)
    journal.write("done", step="s1")
    again = Journal(tmp_path)
    assert again.has("done", step="s1")
    assert not again.has("done", step="s2")
    assert again.find("building") == {
        "kind": "building",
        "rootTime": 5,
        "schema": "rocketstore.journal/1",
    }
    assert again.find("finished") is None


def test_a_line_that_was_torn_is_written_anew(tmp_path: Path) -> None:
    Journal(tmp_path).write("building")
    path = tmp_path / JOURNAL_FILE
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"kind":"prep')
    journal = Journal(tmp_path)
    assert [line["kind"] for line in journal.lines] == ["building"]
    journal.write("prepared")
    assert [line["kind"] for line in Journal(tmp_path).lines] == ["building", "prepared"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"nonsense\n", "line 1"),
        (b"[]\n", "an object with a kind"),
        (b'{"kind":"building","schema":"rocketstore.journal/9"}\n', "journal/9"),
        (b'{"kind":"building","schema":"rocketstore.journal/1"}\n{"kind":3}\n', "line 2"),
    ],
)
def test_a_journal_that_cannot_be_read(content: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / JOURNAL_FILE).write_bytes(content)
    with pytest.raises(MappedFileError, match=words):
        Journal(tmp_path)
