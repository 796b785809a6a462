"""Tables of real brokers: a driver for their managers, random content, and our tables in their
form."""

from __future__ import annotations

import copy
import dataclasses
import random
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from interop import maven
from interop.harness import JVM_FLAGS, VERSIONS, Driver, line_of
from rocketstore.config_managers import (
    BloomFilterData,
    ConfigManager,
    ConsumerFilterData,
    ConsumerFilterManager,
    ConsumerOffsetManager,
    DataVersion,
    DelayOffsetManager,
    LmqConsumerOffsetManager,
    SubscriptionGroupConfig,
    SubscriptionGroupManager,
    TopicConfig,
    TopicConfigManager,
)
from rocketstore.filter.bloom_filter import BloomFilter

HERE = Path(__file__).resolve().parent
INTEROP = HERE.parent
#: A table's content, as fields of RocketMQ's managers.
Content = dict[str, Any]

MANAGERS: dict[str, type[ConfigManager]] = {
    "topics": TopicConfigManager,
    "groups": SubscriptionGroupManager,
    "offsets": ConsumerOffsetManager,
    "light": LmqConsumerOffsetManager,
    "delays": DelayOffsetManager,
    "filters": ConsumerFilterManager,
}
FIELDS = {
    "topics": ("topicConfigTable", "dataVersion"),
    "groups": ("subscriptionGroupTable", "forbiddenTable", "dataVersion"),
    "offsets": ("offsetTable", "pullOffsetTable", "dataVersion"),
    "light": ("offsetTable", "lmqOffsetTable", "dataVersion"),
    "delays": ("offsetTable", "dataVersion"),
    "filters": ("filterDataByTopic",),
}
#: What the 4.9 line does not know: fields of tables, and of the entries with their defaults.
LATER_FIELDS = {
    "groups": ("forbiddenTable",),
    "offsets": ("pullOffsetTable", "dataVersion"),
    "light": ("dataVersion",),
    "delays": ("dataVersion",),
}
#: Fields that a version writes and never reads, not even its own.
UNREAD = {
    ("5.1.4", "groups"): "dataVersion",
    ("5.5.0", "offsets"): "pullOffsetTable",
    **{(version, "light"): "dataVersion" for version in VERSIONS},
}
LATER_ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "topics": ("topicConfigTable", {"attributes": {}}),
    "groups": (
        "subscriptionGroupTable",
        {
            "consumeMessageOrderly": False,
            "groupRetryPolicy": {"type": "CUSTOMIZED"},
            "groupSysFlag": 0,
            "consumeTimeoutMinute": 15,
            "attributes": {},
            "subscriptionDataSet": None,
        },
    ),
}


def command(version: str) -> list[str]:
    """The command that starts the driver of ``version``; compiled when it is not yet."""
    # The broker of 4.9 is not in Maven's repository.
    pom = INTEROP / "java" / "pom.xml" if line_of(version) == 4 else HERE / "pom.xml"
    path = maven.class_path(pom, version)
    folders = (HERE / "java" / "common", HERE / "java" / f"line{line_of(version)}")
    sources = sorted(source for folder in folders for source in folder.glob("*.java"))
    classes = maven.compiled(sources, path, version)
    everything = f"{classes}:{INTEROP / 'java' / 'resources'}:{path}"
    # 4.9 writes in the character set of the machine.
    flags = (*JVM_FLAGS, *maven.JVM_OPENS, "-Dfile.encoding=UTF-8", "-cp", everything)
    return ["java", *flags, "rocketstore.interop.ConfigDriver"]


class ConfigDriver(Driver):
    """One Java process with the tables of one RocketMQ version, on any directory."""

    def __init__(self, version: str, scratch: Path) -> None:
        super().__init__(version, scratch, command(version))

    def _do(self, op: str, table: str, root: Path, **request: Any) -> dict[str, Any]:
        (root / "config").mkdir(parents=True, exist_ok=True)
        fields = fields_of(table, self.version)
        return self._send(op=op, store=table, root=str(root), fields=fields, **request).result()

    def persist(
        self, table: str, root: Path, content: Content, **changes: Sequence[str]
    ) -> Content:
        """Let the table hold ``content``, change it, and write it; what it holds then."""
        held: Content = self._do("persist", table, root, content=content, **changes)["held"]
        return held

    def load(self, table: str, root: Path) -> tuple[Content, str]:
        """Read the table's file; what it holds, and how it would write that."""
        answer = self._do("load", table, root)
        assert answer["loaded"], f"RocketMQ {self.version} does not load {table}"
        return answer["held"], answer["encoded"]


def fields_of(table: str, version: str) -> list[str]:
    """The fields of a table that ``version`` has in its file."""
    later = LATER_FIELDS.get(table, ()) if line_of(version) == 4 else ()
    # Pull offsets are written since 5.5.
    unwritten = () if version == "5.5.0" else ("pullOffsetTable",)
    return [field for field in FIELDS[table] if field not in (*later, *unwritten)]


def known_to(version: str, table: str, content: Content) -> Content:
    """What ``version`` can hold of ``content``."""
    content = copy.deepcopy({field: content[field] for field in fields_of(table, version)})
    if line_of(version) == 4:
        if table in LATER_ENTRIES:
            name, entries = LATER_ENTRIES[table]
            for entry in content[name].values():
                for field in entries:
                    entry.pop(field, None)
        if "dataVersion" in content:
            content["dataVersion"].pop("stateVersion")
    return content


def loaded(content: Content) -> Content:
    """What a manager holds that loads ``content``: filters that were alive are dead since birth."""
    content = ordered(content)
    for groups in content.get("filterDataByTopic", {}).values():
        for data in groups["groupFilterData"].values():
            data["deadTime"] = data["deadTime"] or data["bornTime"]
    return content


def read_by(version: str, table: str, content: Content) -> Content:
    """``content`` without what ``version`` writes and never reads, not even its own."""
    content = copy.deepcopy(content)
    content.pop(UNREAD.get((version, table), ""), None)
    return content


def completed(table: str, content: Content) -> Content:
    """``content``, which some version knows, with what is taken for the rest of it."""
    content = copy.deepcopy(content)
    for field in FIELDS[table]:
        content.setdefault(field, {})
    if table in LATER_ENTRIES:
        name, entries = LATER_ENTRIES[table]
        for entry in content[name].values():
            for field, default in entries.items():
                if default is not None:
                    entry.setdefault(field, default)
    if "dataVersion" in content:
        for field in ("counter", "timestamp", "stateVersion"):
            content["dataVersion"].setdefault(field, 0)
    return content


# --- ours ---------------------------------------------------------------------------------------


def held(manager: ConfigManager) -> Content:
    """What a manager of ours holds, as ``Content``; asserts that it knows every field."""
    table = next(name for name, kind in MANAGERS.items() if kind is type(manager))
    return {field: _shown(getattr(manager, _snake_case(field))) for field in FIELDS[table]} | (
        {"filterDataByTopic": _by_topic(manager)} if table == "filters" else {}
    )


def _by_topic(manager: Any) -> Content:
    table = _shown(manager.filter_data_by_topic)
    return {topic: {"topic": topic, "groupFilterData": groups} for topic, groups in table.items()}


def _shown(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        assert not value.others, f"unknown fields: {value.others}"  # type: ignore[attr-defined]
        names = [item.name for item in dataclasses.fields(value) if item.name != "others"]
        values = {_camel_case(name): _shown(getattr(value, name)) for name in names}
        return {name: inner for name, inner in values.items() if inner is not None}
    if isinstance(value, dict):
        return {str(key): _shown(inner) for key, inner in value.items()}
    return value


def filled(kind: type[ConfigManager], root: Path, content: Content) -> ConfigManager:
    """A manager of ours that holds ``content``, set entry by entry."""
    manager: Any = kind(root)
    for field, values in content.items():
        current = getattr(manager, _snake_case(field))
        if isinstance(current, DataVersion):
            setattr(manager, _snake_case(field), _entry(DataVersion, values))
        else:
            setattr(manager, _snake_case(field), _FILL.get(field, copy.deepcopy)(values))
    return manager  # type: ignore[no-any-return]


def _entry(kind: type[Any], values: Mapping[str, Any]) -> Any:
    return kind(**{_snake_case(name): copy.deepcopy(value) for name, value in values.items()})


def _entries(kind: type[Any]) -> Callable[[Content], dict[str, Any]]:
    return lambda table: {name: _entry(kind, values) for name, values in table.items()}


def _filters(table: Content) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for topic, groups in table.items():
        found[topic] = _entries(ConsumerFilterData)(groups["groupFilterData"])
        for data in found[topic].values():
            data.bloom_filter_data = _entry(BloomFilterData, data.bloom_filter_data)
    return found


def _numbered(table: Content) -> dict[Any, Any]:
    """Offsets by number; of consumers one level further down."""
    if all(isinstance(value, dict) for value in table.values()):
        return {key: _numbered(value) if value else {} for key, value in table.items()}
    return {int(key): value for key, value in table.items()}


_FILL: dict[str, Callable[[Content], Any]] = {
    "topicConfigTable": _entries(TopicConfig),
    "subscriptionGroupTable": _entries(SubscriptionGroupConfig),
    "offsetTable": _numbered,
    "pullOffsetTable": _numbered,
    "filterDataByTopic": _filters,
}


def _snake_case(name: str) -> str:
    return re.sub("[A-Z]", lambda match: "_" + match[0].lower(), name)


def _camel_case(name: str) -> str:
    return re.sub(r"_(\w)", lambda match: match[1].upper(), name)


# --- random content -----------------------------------------------------------------------------

INT = 2**31 - 1
LONG = 2**63 - 1
#: Filters born in 2100 are alive when the tests run, and dead at their birth when they are loaded.
LATER_MS = 4_102_444_800_000
_PLAIN = "abzABZ019-_%|"
#: What some reader or writer of JSON treats in a way of its own.
_UNUSUAL = "\"'\\/{}[]:,.$#@ \t\n\r\b\f\x00\x01\x1f\x7f\x85äß中\u2028\u2029\ufeff\U0001f680<>&"


class Random:
    """Random tables from a seed."""

    def __init__(self, seed: object) -> None:
        self._random = random.Random(str(seed))

    def content(self, table: str, count: int = 8) -> Content:
        """A table of about ``count`` entries, with all fields that any version has."""
        maker: Callable[[int], Content] = getattr(self, f"_{table}")
        return maker(count)

    def shortened(self, content: bytes) -> bytes:
        """The beginning of ``content``; its last bracket at least is missing."""
        return content[: self._random.randrange(1, len(content.rstrip()))]

    def _number(self, limit: int, low: int = 0) -> int:
        return self._random.choice(
            (low, 1, limit, self._random.randint(low, limit), self._random.randint(0, 100))
        )

    def _truth(self) -> bool:
        return self._random.random() < 0.5

    def _text(self, kind: str = _PLAIN + _UNUSUAL, low: int = 0) -> str:
        return "".join(self._random.choices(kind, k=self._random.randint(low, 20)))

    def _name(self) -> str:
        """A name, mostly of those that brokers let people choose."""
        kind = _PLAIN if self._random.random() < 0.6 else _PLAIN + _UNUSUAL.replace("@", "")
        return self._text(kind, 1)

    def _names(self, count: int) -> list[str]:
        return sorted({self._name() for _ in range(count)})

    def _texts(self) -> dict[str, str]:
        texts = {self._text(low=1): self._text() for _ in range(self._random.randint(0, 3))}
        if self._truth():
            texts["queue.type"] = self._random.choice(("BatchCQ", "SimpleCQ"))
        return texts

    def _version(self) -> Content:
        # 5.4.0 throws a table away whose counter has more than 32 bits.
        return {
            "counter": self._number(INT),
            "timestamp": self._number(LONG),
            "stateVersion": self._number(LONG),
        }

    def _topics(self, count: int) -> Content:
        table = {
            name: {
                "topicName": name,
                "readQueueNums": self._number(INT),
                "writeQueueNums": self._number(INT),
                "perm": self._random.randint(0, 7),
                "topicFilterType": self._random.choice(("SINGLE_TAG", "MULTI_TAG")),
                "topicSysFlag": self._number(INT, -INT - 1),
                "order": self._truth(),
                "attributes": self._texts(),
            }
            for name in self._names(count)
        }
        return {"topicConfigTable": table, "dataVersion": self._version()}

    def _retry_policy(self) -> Content:
        policy: Content = {"type": self._random.choice(("CUSTOMIZED", "EXPONENTIAL"))}
        if self._truth():
            numbers = [self._number(LONG) for _ in range(self._random.randint(0, 4))]
            policy["customizedRetryPolicy"] = {"next": numbers}
        if self._truth():
            names = ("initial", "max", "multiplier")
            policy["exponentialRetryPolicy"] = {name: self._number(LONG) for name in names}
        return policy

    def _group(self, name: str) -> Content:
        group: Content = {
            "groupName": name,
            "retryQueueNums": self._number(INT),
            "retryMaxTimes": self._number(INT, -1),
            "groupRetryPolicy": self._retry_policy(),
            "brokerId": self._number(LONG),
            "whichBrokerWhenConsumeSlowly": self._number(LONG),
            "groupSysFlag": self._number(INT),
            "consumeTimeoutMinute": self._number(INT),
            "attributes": self._texts(),
        }
        for field in ("Enable", "FromMinEnable", "BroadcastEnable", "MessageOrderly"):
            group[f"consume{field}"] = self._truth()
        group["notifyConsumerIdsChangedEnable"] = self._truth()
        if self._truth():
            group["subscriptionDataSet"] = [
                {
                    "topic": topic,
                    "expressionType": self._random.choice(("TAG", "SQL92")),
                    "expression": self._text(),
                    "version": self._number(LONG),
                }
                for topic in self._names(3)
            ]
        return group

    def _groups(self, count: int) -> Content:
        names = self._names(count)
        return {
            "subscriptionGroupTable": {name: self._group(name) for name in names},
            "forbiddenTable": {
                name: {topic: self._number(INT) for topic in self._names(3)} for name in names[::2]
            },
            "dataVersion": self._version(),
        }

    def _numbers(self, limit: int) -> dict[str, int]:
        """Offsets by number; sometimes of many."""
        count = self._random.choice((1, 3, 100))
        keys = {self._number(limit) for _ in range(count)}
        return {str(key): self._number(LONG) for key in sorted(keys)}

    def _offsets(self, count: int) -> Content:
        keys = [f"{topic}@{self._name()}" for topic in self._names(count)]
        return {
            "offsetTable": {key: self._numbers(INT) for key in keys},
            "pullOffsetTable": {key: self._numbers(INT) for key in keys[::2]},
            "dataVersion": self._version(),
        }

    def _light(self, count: int) -> Content:
        content = self._offsets(count)
        content.pop("pullOffsetTable")
        keys = [f"{topic}@%LMQ%{self._name()}" for topic in self._names(count)]
        return {**content, "lmqOffsetTable": {key: self._number(LONG) for key in keys}}

    def _delays(self, count: int) -> Content:
        return {"offsetTable": self._numbers(18), "dataVersion": self._version()}

    def _filter(self, topic: str, group: str) -> Content:
        born = LATER_MS + self._number(10**9)
        bloom = BloomFilter.create()
        return {
            "consumerGroup": group,
            "topic": topic,
            # Brokers compile expressions when they read them.
            "expression": self._random.choice(
                ("a > 1 AND b = 'x'", "TAGS IS NOT NULL", "c IN ('ä', '\\\\', '\"')", "d < 1.5")
            ),
            "expressionType": "SQL92",
            "bornTime": born,
            "deadTime": self._random.choice((0, born, born + 1, self._number(LONG, born))),
            "clientVersion": self._number(LONG),
            "bloomFilterData": {
                "bitPos": bloom.bit_positions(group, topic),
                "bitNum": bloom.m,
            },
        }

    def _filters(self, count: int) -> Content:
        table = {}
        for topic in self._names(count):
            groups = {group: self._filter(topic, group) for group in self._names(4)}
            table[topic] = {"topic": topic, "groupFilterData": groups}
        return {"filterDataByTopic": table}


def ordered(content: Content) -> Content:
    """``content`` with its sets in one order."""
    content = copy.deepcopy(content)
    for entry in content.get("subscriptionGroupTable", {}).values():
        if "subscriptionDataSet" in entry:
            entry["subscriptionDataSet"].sort(key=lambda row: sorted(map(str, row.items())))
    return content
