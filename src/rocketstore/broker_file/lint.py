"""``config lint``: what in a broker's file does not do what it seems to."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from rocketstore.broker_file.entries import (
    ALIASES,
    TRIMMED,
    ConfigEntry,
    Source,
    camel_case,
    field_of,
    odd_reading,
    pairs_of,
    path_of,
    similar_key,
    value_of,
)
from rocketstore.broker_file.known_keys import known_keys, knows
from rocketstore.errors import ConfigError

Severity = Literal["note", "warning", "error"]
RemarkCode = Literal["unknown", "ignored", "dangerous", "contradicts", "renamed"]

#: Old names, and those that took their place.
RENAMED = {
    "memTableFlushInterval": "memTableFlushIntervalMs",
    "haSlaveFallbehindMax": "haMaxGapNotInSync",
    "tieredStoreFilepath": "tieredStoreFilePath",
    "ossAccessKey": "objectStoreAccessKey",
    "ossBucket": "objectStoreBucket",
    "ossEndpoint": "objectStoreEndpoint",
    "ossSecretKey": "objectStoreSecretKey",
    "mapedFileSizeCommitLog": "mappedFileSizeCommitLog",
    "mapedFileSizeConsumeQueue": "mappedFileSizeConsumeQueue",
}
_UNUSED = "RocketMQ does not use it either"
_INT_MAX = 2**31 - 1
_DEFAULTS = {
    "listenPort": 10911,
    "mappedFileSizeCommitLog": 1 << 30,
    "maxMessageSize": 4 << 20,
    "maxHashSlotNum": 5_000_000,
    "maxIndexNum": 20_000_000,
    "diskMaxUsedSpaceRatio": 75,
    "diskSpaceCleanForciblyRatio": 85,
    "diskSpaceWarningLevelRatio": 90,
}
#: Bytes of an index file's header, of a slot and of an entry.
_INDEX_NBYTES = (40, 4, 20)


@dataclass(frozen=True, slots=True)
class ConfigRemark:
    """One remark about a broker's file.

    Attributes
    ----------
    line : int or None
        From 1; ``None`` if the source was a mapping.
    option : str
        The key as the file has it.
    severity : {"note", "warning", "error"}
        ``"error"``: the broker does not start, or loses data.
    code : {"unknown", "ignored", "dangerous", "contradicts", "renamed"}
    reason : str
    """

    line: int | None
    option: str
    severity: Severity
    code: RemarkCode
    reason: str


def lint(source: Source, kinds: Mapping[str, str], version: str | None) -> list[ConfigRemark]:
    """Return what is remarkable in a broker's file, by line.

    Parameters
    ----------
    source : mapping, path, text or file
        See ``MessageStoreConfig.from_properties``.
    kinds : mapping
        Annotation of each field of the configuration, by name.
    version : str, optional
        The RocketMQ version that will read the file; by default any from 4.9.0 to 5.5.0.

    Raises
    ------
    ConfigError
        The source is no configuration.
    OSError
        It cannot be read.
    """
    path = path_of(source)
    pairs, has_mark = pairs_of(source, path)
    entries = [ConfigEntry(key, value, line, "used", None) for key, value, line in pairs]
    found: list[ConfigRemark] = []
    if has_mark and entries:
        reason = "RocketMQ takes the byte order mark before it as part of the key"
        found.append(_remark(entries[0], "error", "unknown", reason))
    last = {_true_name(entry.key): entry for entry in entries}
    for entry in entries:
        final = last[_true_name(entry.key)]
        if final is not entry:
            code: RemarkCode = "ignored" if final.value == entry.value else "contradicts"
            place = f"line {final.line}" if final.line is not None else final.key
            found.append(_remark(entry, "warning", code, f"{place} sets it again"))
            continue
        found += _remarks_of(entry, kinds, version)
    values = _Values({name: one for name, one in last.items() if one.key in known_keys()})
    for check in _CHECKS:
        found += check(values)
    return sorted(found, key=lambda one: one.line or 0)


def _remark(entry: ConfigEntry, severity: Severity, code: RemarkCode, reason: str) -> ConfigRemark:
    return ConfigRemark(entry.line, entry.key, severity, code, reason)


def _true_name(key: str) -> str:
    """Return RocketMQ's name for a key."""
    return RENAMED.get(key) or (camel_case(ALIASES[key]) if key in ALIASES else key)


# --- one key --------------------------------------------------------------------------------------


def _remarks_of(
    entry: ConfigEntry, kinds: Mapping[str, str], version: str | None
) -> Iterator[ConfigRemark]:
    known = known_keys().get(entry.key)
    if known is None:
        yield _unknown(entry, kinds)
        return
    if version is not None and not knows(entry.key, version):
        new = RENAMED.get(entry.key)
        if new is not None and knows(new, version):
            yield _remark(entry, "warning", "renamed", f"RocketMQ {version} knows it as {new}")
            return
        spans = [f"from {known.since}"] if known.since else []
        spans += [f"up to {known.until}"] if known.until else []
        reason = f"RocketMQ {version} does not know it, only RocketMQ {' '.join(spans)}"
        yield _remark(entry, "warning", "unknown", reason)
        return
    if known.reason == _UNUSED:
        yield _remark(entry, "note", "ignored", "RocketMQ reads it and does nothing with it")
    option = field_of(entry.key)
    if option not in kinds:
        return
    of_field = ConfigEntry(entry.key, entry.value, entry.line, "used", option)
    odd = odd_reading(of_field, kinds[option])
    if odd:
        yield _remark(entry, "warning", "ignored" if "ignores" in odd else "dangerous", odd)
        return
    try:
        value_of(of_field, kinds, None)
    except ConfigError:
        shown = repr(entry.value[:80])
        if kinds[option].startswith("bool"):
            reason = f"{shown} is neither true nor false; RocketMQ reads it as false"
            yield _remark(entry, "warning", "dangerous", reason)
        elif kinds[option].startswith(("int", "float")):
            reason = f"{shown} is no number; RocketMQ uses its default"
            yield _remark(entry, "error", "ignored", reason)
        else:
            yield _remark(entry, "error", "dangerous", f"{shown} cannot be read")


def _unknown(entry: ConfigEntry, kinds: Mapping[str, str]) -> ConfigRemark:
    new = _true_name(entry.key)
    if new == entry.key and field_of(entry.key) in kinds:
        new = camel_case(field_of(entry.key))
    if new != entry.key and new in known_keys():
        return _remark(entry, "warning", "renamed", f"RocketMQ knows it as {new}")
    if field_of(entry.key) in kinds:
        reason = "of rocketstore alone; a broker ignores it"
        return _remark(entry, "note", "ignored", reason)
    similar = similar_key(entry.key)
    hint = f"; did you mean {similar}?" if similar else ""
    return _remark(entry, "warning", "unknown", f"no RocketMQ reads it{hint}")


# --- several keys ---------------------------------------------------------------------------------


class _Values:
    """The values that hold, by RocketMQ's names."""

    def __init__(self, entries: Mapping[str, ConfigEntry]) -> None:
        self._entries = entries

    def entry(self, name: str) -> ConfigEntry | None:
        return self._entries.get(name)

    def text(self, name: str) -> str:
        entry = self._entries.get(name)
        return "" if entry is None else entry.value.strip(TRIMMED)

    def number(self, name: str) -> int | None:
        """Return a number, the default if the file has none or RocketMQ cannot read it."""
        entry = self._entries.get(name)
        if entry is not None and re.fullmatch(r"[+-]?[0-9]{1,18}", entry.value):
            return int(entry.value)
        return _DEFAULTS.get(name)

    def flag(self, name: str) -> bool | None:
        entry = self._entries.get(name)
        return None if entry is None else entry.value.strip(TRIMMED).lower() == "true"

    def at(
        self, name: str, severity: Severity, code: RemarkCode, reason: str
    ) -> list[ConfigRemark]:
        entry = self._entries.get(name)
        return [] if entry is None else [_remark(entry, severity, code, reason)]


_Check = Callable[[_Values], list[ConfigRemark]]


def _one_of(name: str, allowed: tuple[str, ...], default: str) -> _Check:
    def check(values: _Values) -> list[ConfigRemark]:
        entry = values.entry(name)
        if entry is None or entry.value in allowed:
            return []
        reason = (
            f"{entry.value[:80]!r}: must be one of {', '.join(allowed)}; RocketMQ uses {default}"
        )
        return [_remark(entry, "error", "dangerous", reason)]

    return check


def _check_role(values: _Values) -> list[ConfigRemark]:
    role, number = values.text("brokerRole"), values.number("brokerId")
    if role == "SLAVE" and (number is None or number <= 0):
        name = "brokerId" if values.entry("brokerId") else "brokerRole"
        reason = "a slave needs a brokerId above 0; the broker does not start"
        return values.at(name, "error", "contradicts", reason)
    is_master = role in ("", "ASYNC_MASTER", "SYNC_MASTER")
    if is_master and number not in (None, 0) and not values.flag("enableDLegerCommitLog"):
        if values.flag("enableControllerMode"):
            return []
        return values.at("brokerId", "warning", "ignored", "a master's brokerId is always 0")
    return []


def _check_ports(values: _Values) -> list[ConfigRemark]:
    port, other = values.number("listenPort"), values.number("haListenPort")
    if port is None or other is None:
        return []
    if other == port:
        return values.at("haListenPort", "error", "contradicts", f"listenPort is {port}, too")
    if other == port - 2:
        reason = f"a broker also listens on listenPort - 2, which is {other}"
        return values.at("haListenPort", "error", "contradicts", reason)
    return []


def _check_sizes(values: _Values) -> list[ConfigRemark]:
    found = []
    segment, body = values.number("mappedFileSizeCommitLog"), values.number("maxMessageSize")
    if segment is not None and body is not None and body >= segment:
        name = "maxMessageSize" if values.entry("maxMessageSize") else "mappedFileSizeCommitLog"
        reason = f"a message of {body:,} bytes does not fit in a segment of {segment:,} bytes"
        found += values.at(name, "error", "contradicts", reason)
    unit = values.number("mappedFileSizeConsumeQueue")
    if unit is not None and unit % 20:
        reason = f"RocketMQ rounds it up to {-(-unit // 20) * 20}, a multiple of 20"
        found += values.at("mappedFileSizeConsumeQueue", "note", "ignored", reason)
    head, slot, entry = _INDEX_NBYTES
    slots, entries = values.number("maxHashSlotNum"), values.number("maxIndexNum")
    if slots is not None and entries is not None:
        nbytes = head + slot * slots + entry * entries
        if nbytes > _INT_MAX:
            name = "maxIndexNum" if values.entry("maxIndexNum") else "maxHashSlotNum"
            reason = f"an index file would have {nbytes:,} bytes, more than 2 GiB"
            found += values.at(name, "error", "dangerous", reason)
    return found


def _check_cleaning(values: _Values) -> list[ConfigRemark]:
    found = []
    hours = values.entry("deleteWhen")
    if hours is not None and not all(
        re.fullmatch("[0-9]{1,2}", part) and int(part) < 24 for part in hours.value.split(";")
    ):
        reason = f"{hours.value[:80]!r} is no list of hours such as 04;16: nothing expires by time"
        found.append(_remark(hours, "error", "dangerous", reason))
    kept = values.number("fileReservedTime")
    if kept is not None and kept < 1:
        reason = "every segment but the newest expires as soon as it is full"
        found += values.at("fileReservedTime", "error", "dangerous", reason)
    used = values.number("diskMaxUsedSpaceRatio")
    if used is not None and not 10 <= used <= 95:
        reason = f"RocketMQ takes {min(max(used, 10), 95)}"
        found += values.at("diskMaxUsedSpaceRatio", "warning", "ignored", reason)
    forced = values.number("diskSpaceCleanForciblyRatio")
    limit = values.number("diskSpaceWarningLevelRatio")
    if forced is not None and limit is not None and forced >= limit:
        name = "diskSpaceWarningLevelRatio"
        name = name if values.entry(name) else "diskSpaceCleanForciblyRatio"
        reason = f"puts are refused at {limit} %, before files go regardless of age at {forced} %"
        found += values.at(name, "warning", "contradicts", reason)
    return found


def _check_durability(values: _Values) -> list[ConfigRemark]:
    found = []
    if values.flag("checkCRCOnRecover") is False:
        reason = "recovery takes bytes for messages although their checksums are wrong"
        found += values.at("checkCRCOnRecover", "warning", "dangerous", reason)
    if values.flag("transientStorePoolEnable"):
        is_sync = values.text("flushDiskType") == "SYNC_FLUSH"
        if is_sync or values.text("brokerRole") == "SLAVE":
            reason = "without effect on a slave, and in 4.9 with SYNC_FLUSH"
            found += values.at("transientStorePoolEnable", "warning", "contradicts", reason)
        else:
            reason = "a killed broker loses acknowledged messages that were not copied to the file"
            found += values.at("transientStorePoolEnable", "warning", "dangerous", reason)
    if values.flag("messageIndexEnable") is False:
        reason = "messages are not found by key"
        found += values.at("messageIndexEnable", "note", "dangerous", reason)
    return found


def _check_pairs(values: _Values) -> list[ConfigRemark]:
    found = []
    lmq, multi = values.flag("enableLmq"), values.flag("enableMultiDispatch")
    if bool(lmq) != bool(multi):
        name = "enableLmq" if lmq else "enableMultiDispatch"
        other = "enableMultiDispatch" if lmq else "enableLmq"
        reason = f"light queues need {other}=true as well"
        found += values.at(name, "warning", "contradicts", reason)
    if values.flag("enableDLegerCommitLog"):
        missing = [
            name for name in ("dLegerGroup", "dLegerPeers", "dLegerSelfId") if not values.text(name)
        ]
        if missing:
            reason = f"{', '.join(missing)} must be set, too"
            found += values.at("enableDLegerCommitLog", "error", "contradicts", reason)
        if values.flag("enableControllerMode"):
            reason = "enableControllerMode is true, too"
            found += values.at("enableDLegerCommitLog", "error", "contradicts", reason)
    names = values.entry("namesrvAddr")
    if names is not None and "," in names.value:
        reason = "addresses are separated by semicolons; the broker does not start"
        found.append(_remark(names, "error", "dangerous", reason))
    return found


_CHECKS: tuple[_Check, ...] = (
    _one_of("flushDiskType", ("SYNC_FLUSH", "ASYNC_FLUSH"), "ASYNC_FLUSH"),
    _one_of("brokerRole", ("ASYNC_MASTER", "SYNC_MASTER", "SLAVE"), "ASYNC_MASTER"),
    _check_role,
    _check_ports,
    _check_sizes,
    _check_cleaning,
    _check_durability,
    _check_pairs,
)
