"""What a real RocketMQ makes of a damaged store, in the terms of ``doctor``'s forecast."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from interop.cases import PARTS
from interop.harness import Driver, DriverError
from rocketstore.config import MessageStoreConfig
from rocketstore.diagnosis.broker import Broker, BrokerOptions, LogContent
from rocketstore.diagnosis.image import StoreImage
from rocketstore.diagnosis.verdict import BrokerForecast
from rocketstore.directory.checkpoint import StoreCheckpoint
from rocketstore.directory.paths import StorePaths

#: Most messages of one query, as a broker allows.
QUERY_MAX = 64
#: Seconds for one answer; a loop in an index file never gives one.
DEADLINE_S = 60.0
Queue = tuple[str, int]
FIELDS = ("starts", "log", "cuts", "deletes", "changed", "unchanged", "keysNotFound", "hangsAt")


class Wanted:
    """What the good records of a damaged log demand of a broker.

    Attributes
    ----------
    offsets : dict
        Log offsets by queue, in the order of queue offsets.
    keys : dict
        Log offsets by topic and key.
    batch_queues : set
    """

    def __init__(self, root: Path, config: Mapping[str, str]) -> None:
        settings = MessageStoreConfig.from_properties(config)
        image = StoreImage(StorePaths.of(root, settings))
        content = LogContent.read(image, settings.delay_ms)
        lmq = config.get("enableMultiDispatch") == "true"
        options = BrokerOptions((5, 5, 0), 1, 1, 1, 1, multi_dispatch=lmq)
        broker = Broker(image, content, options, StoreCheckpoint(), is_unclean=False)
        self.offsets = broker.expected()
        self.batch_queues = set(image.batch_queues)
        self.records = list(content.intact())
        self.keys: dict[tuple[str, str], set[int]] = {}
        for record in self.records:
            for name in record.names:
                text = name[len(record.topic) + 1 :].decode("utf-8", "replace")
                key = record.topic.decode("utf-8", "replace"), text
                self.keys.setdefault(key, set()).add(record.offset)
        self.keys = {key: found for key, found in self.keys.items() if len(found) <= QUERY_MAX}


def files_of(root: Path) -> set[str]:
    """Return the files of log, queues and index."""
    return {
        path.relative_to(root).as_posix()
        for part in PARTS
        for path in (root / part).rglob("*")
        if path.is_file()
    }


def queues_of(root: Path) -> set[Queue]:
    """Return the queues that have a folder."""
    folders = [path for part in PARTS[1:3] for path in (root / part).glob("*/*")]
    return {(path.parent.name, int(path.name)) for path in folders if path.name.isdecimal()}


def seen_of(
    driver: Driver, name: str, root: Path, known: Mapping[str, Any], wanted: Wanted
) -> dict[str, Any]:
    """Let RocketMQ open ``root`` and return what it did, by the fields of ``FIELDS``.

    A field that could not be asked is missing. After a hang the driver must not be used again:
    ``hung`` is true.
    """
    before, folders = files_of(root), queues_of(root)
    seen: dict[str, Any] = {"deletes": [], "hung": False}
    pending = driver.open(name, root, known["config"], known["topics"])
    try:
        loaded = pending.result(DEADLINE_S)
    except DriverError as error:
        seen["hung"] = "no answer" in str(error)
        seen["starts"] = None if seen["hung"] else False
        return seen
    seen["starts"] = loaded["load"]
    if not loaded["load"]:
        return seen
    try:
        info, everything = driver.ask(name, [{"op": "wait"}, {"op": "dumpall"}]).result(DEADLINE_S)[
            "answers"
        ]
    except DriverError as error:
        seen |= {"hung": "no answer" in str(error), "hangsAt": "pull"}
        return seen
    if "raised" in info and "behind" in info["raised"]:
        seen["starts"], seen["hung"] = None, True  # dispatch waits for ever
        return seen
    _take_queues(seen, info, everything, wanted, folders)
    seen["deletes"] = sorted(before - files_of(root))
    _take_keys(seen, driver, name, wanted)
    return seen


def _take_queues(
    seen: dict[str, Any],
    info: dict[str, Any],
    everything: dict[str, Any],
    wanted: Wanted,
    folders: set[Queue],
) -> None:
    seen["log"] = {"min": info["minPhy"], "max": info["maxPhy"]}
    end = info["maxPhy"]
    gone = [one for one in wanted.records if one.place >= end]
    seen["cuts"] = len(gone)
    if "raised" in everything:
        seen["changed"] = everything["raised"]
        return
    served = {
        (row["topic"], row["queueId"]): (
            row["min"], row["max"], [item["offset"] for item in row["messages"]]
        )
        for row in everything["queues"]
    }  # fmt: skip
    known = {*wanted.offsets, *folders, *(key for key, row in served.items() if row[1])}
    known -= wanted.batch_queues  # of which there is no forecast
    changed = {}
    for key in known:
        low, high, offsets = served.get(key, (0, 0, []))
        if offsets != wanted.offsets.get(key, []):
            changed[key] = (low, high, len(offsets))
    seen["changed"] = changed
    seen["unchanged"] = len(known) - len(changed)


def _take_keys(seen: dict[str, Any], driver: Driver, name: str, wanted: Wanted) -> None:
    asked = [
        {"op": "query", "topic": topic, "key": key, "max": QUERY_MAX}
        for topic, key in sorted(wanted.keys)
    ]
    seen["hangsAt"] = None
    try:
        answers = driver.ask(name, asked).result(DEADLINE_S)["answers"]
    except DriverError as error:
        seen["hung"] = "no answer" in str(error)
        seen["hangsAt"] = "query" if seen["hung"] else str(error)[:200]
        return
    lost = 0
    for key, answer in zip(sorted(wanted.keys), answers, strict=True):
        found = {row["offset"] for row in answer.get("messages", ())}
        lost += not wanted.keys[key] <= found
    seen["keysNotFound"] = lost


def said_of(forecast: BrokerForecast) -> dict[str, Any]:
    """Return a forecast by the same fields."""
    said: dict[str, Any] = {"starts": forecast.starts, "deletes": forecast.deletes}
    if not forecast.starts:
        return said
    said["log"] = forecast.log
    said["cuts"] = None if forecast.truncates is None else forecast.truncates["messages"]
    if forecast.queues is not None:
        said["changed"] = {
            (row["topic"], row["queueId"]): (row["min"], row["max"], row["served"])
            for row in forecast.queues["changed"]
        }
        said["unchanged"] = forecast.queues["unchanged"]
    said["keysNotFound"], said["hangsAt"] = forecast.keys_not_found, forecast.hangs_at
    return said
