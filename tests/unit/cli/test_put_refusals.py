"""Why a put was refused: sizes and limits, and what the bytes of a line look like.

A body that was too large was answered with MESSAGE_ILLEGAL alone, UTF-16 with "utf-16-be codec
can't decode bytes in position …".
"""

from __future__ import annotations

from pathlib import Path

import pytest

from support.command_line import COMMAND, ENVIRONMENT, lines, run

OPTIONS = ("--create", "--segment-size", "64KiB", "--quiet")
LINE = '{"topic": "T", "body": "x"}\n'


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (LINE.encode("utf-16"), "looks like UTF-16"),
        (LINE.encode("utf-16-be"), "looks like UTF-16"),
        (LINE.encode("utf-16-le"), "looks like UTF-16"),
        (LINE.encode("utf-32"), "looks like UTF-32"),
        (b"\x1f\x8b\x08\x00abc\n", "looks like a gzip file"),
        (b"PAR1\x15\x04\xff\n", "looks like a Parquet file"),
        (bytes(range(256)), "looks like a binary file"),
        (b'{"topic": "T", "body": "\xe9"}\n', "it is not UTF-8: byte 25 is 0xe9"),
        (b"nonsense\n", "not JSON"),
    ],
)
def test_a_line_that_is_no_text_is_described(content: bytes, words: str, tmp_path: Path) -> None:
    root = tmp_path / "s"
    run("put", root, *OPTIONS, "T", "first")
    answer = run("put", root, "--lines", "-", code=2, stdin=content)
    assert f"stdin, line 1: {words}" in answer.stderr or words in answer.stderr
    assert "codec" not in answer.stderr


def test_a_byte_order_mark_of_utf_8_is_no_part_of_the_first_line(tmp_path: Path) -> None:
    root = tmp_path / "s"
    run("put", root, *OPTIONS, "--lines", "-", stdin=b"\xef\xbb\xbf" + LINE.encode())
    assert [row["body"] for row in lines(run("scan", root))] == ["x"]


CASES = [
    ("T", "x" * 5_000_000, {}, "the body has 5,000,000 bytes; max_message_size allows 4,194,304"),
    ("T", "x" * 100_000, {}, "does not fit into a log file of 65,536"),
    ("T" * 200, "x", {}, "the topic has 200 bytes; 127 are allowed"),
    ("T", "x", {"a": "b" * 40_000}, "properties have 40,003 bytes; 32,767 are allowed"),
    ("T", "x", {"KEYS": "k" * 40_000}, "properties have 40,006 bytes; 32,767 are allowed"),
]


@pytest.mark.parametrize(("topic", "body", "properties", "words"), CASES)
def test_what_is_too_long_is_named_with_its_limit(
    topic: str, body: str, properties: dict[str, str], words: str, tmp_path: Path
) -> None:
    import json

    root = tmp_path / "s"
    run("put", root, *OPTIONS, "T", "first")
    options = [word for pair in properties.items() for word in ("--property", "=".join(pair))]
    answer = run("put", root, topic, "-", *options, code=1, stdin=body.encode())
    assert words in answer.stderr
    line = json.dumps({"topic": topic, "body": body, "properties": properties}).encode()
    answer = run("put", root, "--lines", "-", code=1, stdin=line)
    assert words in answer.stderr


@pytest.mark.parametrize("word", ["x", "", "Native", "reference ", "\t"])
def test_a_wrong_body_of_kernels_is_one_sentence(word: str) -> None:
    import subprocess

    environment = {**ENVIRONMENT, "ROCKETSTORE_KERNELS": word}
    done = subprocess.run(
        [*COMMAND, "info", "store"], env=environment, capture_output=True, text=True, check=False
    )
    expected = f"rocketstore: ROCKETSTORE_KERNELS is {word!r}; it must be 'native' or 'reference'\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", expected)


def test_a_version_that_is_too_new_is_refused_without_words_for_python(tmp_path: Path) -> None:
    answer = run("put", tmp_path / "s", "--broker-version", "9.9.9", "T", "x", code=2)
    assert "newer than 5.5" in answer.stderr
    assert "allow_newer" not in answer.stderr
