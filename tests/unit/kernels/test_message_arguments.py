"""``Message`` takes what ``put`` takes: tags, keys, a unique key and a delay level by name."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from support.kernel_bodies import Bodies

GIVEN: list[tuple[dict[str, Any], dict[str, str]]] = [
    ({"tags": "t", "keys": "k"}, {"TAGS": "t", "KEYS": "k"}),
    ({"keys": ["a", "b"], "tags": ""}, {"TAGS": "", "KEYS": "a b"}),
    ({"keys": "a b"}, {"KEYS": "a b"}),
    ({"unique_key": "u", "properties": {"x": "1"}}, {"x": "1", "UNIQ_KEY": "u"}),
    ({"delay_level": 3, "tags": "t"}, {"TAGS": "t", "DELAY": "3"}),
    ({"delay_level": 0, "tags": None, "keys": None}, {}),
]


@pytest.mark.parametrize(("given", "properties"), GIVEN)
def test_arguments_become_properties_in_order(
    kernels: Bodies, given: dict[str, Any], properties: dict[str, str]
) -> None:
    message = kernels.message.Message("Orders", b"", **given)
    assert list(message.properties.items()) == list(properties.items())
    assert message.tags == properties.get("TAGS")


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"tags": "t", "properties": {"TAGS": "u"}}, ValueError),
        ({"keys": "k", "properties": {"KEYS": "k"}}, ValueError),
        ({"unique_key": "k", "properties": {"UNIQ_KEY": "k"}}, ValueError),
        ({"delay_level": 1, "properties": {"DELAY": "1"}}, ValueError),
        ({"keys": ["a b"]}, ValueError),
        ({"keys": [""]}, ValueError),
        ({"tags": b"t"}, TypeError),
        ({"keys": 5}, TypeError),
        ({"delay_level": "1"}, TypeError),
    ],
)
def test_what_put_refuses_is_refused(
    kernels: Bodies, given: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        kernels.message.Message("Orders", b"", **given)


def test_a_message_is_put_as_its_arguments_are(tmp_path: Path) -> None:
    given: dict[str, Any] = {"tags": "t", "keys": ["a", "b"], "unique_key": "u"}
    with rocketstore.open(tmp_path / "s", "x") as store:
        assert store.put("Orders", b"x", **given).ok
        message = rocketstore.Message("Orders", b"x", **given)
        assert store.put_message(pickle.loads(pickle.dumps(message))).ok
        first, second = store.scan()
        assert first.properties == second.properties
