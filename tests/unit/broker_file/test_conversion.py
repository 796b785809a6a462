"""``convert_config``: a file for another version keeps its comments, its order and its values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketstore import ConfigError, convert_config
from rocketstore.broker_file import java_properties

FILE = """\
# A broker.
brokerName = a
timerWheelEnable=true
haSlaveFallbehindMax=100

! old style
mapedFileSizeCommitLog=1048\\
  576
listenPort:10911
foo=bar
"""


def test_to_4_9() -> None:
    made = convert_config(FILE, "4.9")
    assert made.version == "4.9.8"
    assert [(one.line, one.option, one.code) for one in made.changes] == [
        (3, "timerWheelEnable", "unknown"),
        (7, "mapedFileSizeCommitLog", "renamed"),
        (10, "foo", "unknown"),
    ]
    assert made.text == (
        "# A broker.\nbrokerName = a\n"
        "# RocketMQ 4.9.8 does not read this:\n# timerWheelEnable=true\n"
        "haSlaveFallbehindMax=100\n\n! old style\nmappedFileSizeCommitLog=1048576\n"
        "listenPort:10911\n# RocketMQ 4.9.8 does not read this:\n# foo=bar\n"
    )
    assert {one.code for one in made.remarks} == {"contradicts"}  # a body does not fit in a segment


def test_there_and_back_again() -> None:
    text = "# c\nhaSlaveFallbehindMax=100\nbrokerName=a\n"
    newer = convert_config(text, "5.x")
    assert "haMaxGapNotInSync=100" in newer.text
    assert convert_config(newer.text, "4.9").text == text


NAMES = st.sampled_from(["brokerName", "listenPort", "fileReservedTime", "namesrvAddr"])
VALUES = st.text(st.characters(min_codepoint=32, max_codepoint=255), max_size=20)


@given(st.lists(st.tuples(NAMES, VALUES), max_size=8), st.sampled_from(["\n", "\r\n"]))
def test_known_keys_stay_as_they_are(pairs: list[tuple[str, str]], end: str) -> None:
    lines = [f"{name}={java_properties.escape_value(value)}" for name, value in pairs]
    text = end.join(["# head", *lines]) + end
    for to in ("4.9", "5.x"):
        made = convert_config(text, to)
        assert made.text == text.replace(end, "\n")
        assert not made.changes


@given(st.text(st.characters(max_codepoint=255, exclude_characters="\0"), max_size=200))
def test_pieces_make_up_the_text(text: str) -> None:
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if not lines[-1]:
        lines.pop()
    found = list(java_properties.raw_entries(text))
    assert "\n".join(piece for _, piece in found) == "\n".join(lines)
    try:
        parsed = [one.line for one in java_properties.parse(text)]
    except ConfigError:
        return
    assert [number for number, _ in found if number is not None] == parsed


def test_of_a_table() -> None:
    assert convert_config({"brokerName": "a b", "foo": "x"}, "5.3.3").text == (
        "brokerName=a b\n# RocketMQ 5.3.3 does not read this:\n# foo=x\n"
    )


@pytest.mark.parametrize("to", ["", "6", "five"])
def test_no_version(to: str) -> None:
    with pytest.raises(ConfigError, match="is no version"):
        convert_config("a=b\n", to)


def test_text_beyond_the_files_encoding_is_kept() -> None:
    made = convert_config("brokerName=\u6f22\n", "5.x")
    assert made.text == "brokerName=\u6f22\n"
