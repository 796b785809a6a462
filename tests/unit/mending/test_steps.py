"""Steps of a repair as they are written down, and what is refused when they are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketstore.errors import MappedFileError, UnsafePathError
from rocketstore.mending.steps import Content, FileChange, Step, content_of, refuse_change

DIGEST = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
STEP = Step("s1", "queue.build", "queues of T", (FileChange("a/b", None, Content(0, DIGEST)),))


def test_a_step_is_read_as_it_was_written() -> None:
    assert Step.from_json(STEP.to_json()) == STEP


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("path", "../a"), ("path", "/a"), ("path", "a//b"), ("path", "a/./b"), ("path", ""),
        ("path", "a\0b"), ("path", 3), ("expects", None), ("expects", {"absent": False}),
        ("becomes", {"size": -1, "sha256": DIGEST}), ("becomes", {"size": 1, "sha256": "0"}),
        ("becomes", {"size": True, "sha256": DIGEST}), ("becomes", {"size": 1}),
        ("becomes", {"size": 1, "sha256": DIGEST, "link": "x"}),
    ],
)  # fmt: skip
def test_a_change_that_cannot_be(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=r"path below|size and"):
        FileChange.from_json(STEP.files[0].to_json() | {name: value})


@pytest.mark.parametrize("name", ["id", "kind", "sentence", "files"])
def test_a_step_that_lacks_a_member(name: str) -> None:
    found = STEP.to_json()
    del found[name]
    with pytest.raises(ValueError, match="id, kind, sentence and files"):
        Step.from_json(found)


def test_files_are_hashed_and_links_out_refused(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "empty").write_bytes(b"")
    assert content_of(root / "empty", root) == Content(0, DIGEST)
    assert content_of(root / "none", root) is None
    (tmp_path / "outside").write_bytes(b"x")
    (root / "link").symlink_to(tmp_path / "outside")
    with pytest.raises(UnsafePathError):
        content_of(root / "link", root)
    with pytest.raises(MappedFileError, match=r"is a directory|not a regular file"):
        content_of(root, root)


@pytest.mark.parametrize(
    ("expected", "found", "words"),
    [
        (Content(1, DIGEST), None, "is gone"),
        (None, Content(1, DIGEST), "was not there before"),
        (Content(1, DIGEST), Content(2, DIGEST), "was changed by another process"),
    ],
)
def test_what_is_not_expected_is_told(
    expected: Content | None, found: Content | None, words: str
) -> None:
    with pytest.raises(MappedFileError, match=words):
        refuse_change(Path("f"), expected, found)
    refuse_change(Path("f"), expected, expected)
