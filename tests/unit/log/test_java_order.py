"""Properties that a broker writes again."""

from __future__ import annotations

from rocketstore.log.java_order import rewritten


def test_names_are_set_and_removed() -> None:
    text = b"TAGS\x01t\x02KEYS\x01k\x02"
    result = rewritten(text, set={"KEYS": "new", "x": "1"}, buckets=128, trailing=True)
    assert sorted(result.split(b"\x02")[:-1]) == [b"KEYS\x01new", b"TAGS\x01t", b"x\x011"]
    assert result.endswith(b"\x02")
    assert rewritten(result, remove=["KEYS", "x"], buckets=128, trailing=False) == b"TAGS\x01t"
    assert rewritten(text, remove=["KEYS", "TAGS"], buckets=16, trailing=True) == b""


def test_a_text_without_a_last_separator_is_extended() -> None:
    result = rewritten(b"a\x011", set={"b": "2"}, buckets=16, trailing=True)
    assert result == b"a\x011\x02b\x012\x02"
    assert rewritten(b"", set={"b": "2"}, buckets=16, trailing=False) == b"b\x012"


def test_removed_names_count_for_the_size_of_the_map() -> None:
    """A Java map does not shrink: 13 names in 16 buckets double them before one is removed."""
    names = [f"name{number * number}" for number in range(13)]
    text = b"".join(name.encode() + b"\x011\x02" for name in names)
    whole = rewritten(text, buckets=16, trailing=True).split(b"\x02")
    fewer = rewritten(text, remove=["name25"], buckets=16, trailing=True).split(b"\x02")
    assert fewer == [pair for pair in whole if pair != b"name25\x011"]
    assert fewer != rewritten(b"\x02".join(fewer), buckets=16, trailing=True).split(b"\x02")
