"""A broker's configuration file: its keys, what they mean for a store, and what RocketMQ ignores.

The fields of ``MessageStoreConfig`` are handed in, so that this module stands below it.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any, Literal, TypeVar

from rocketstore.broker_file import java_properties
from rocketstore.broker_file.known_keys import known_keys
from rocketstore.errors import ConfigError

Source = Mapping[str, str] | str | bytes | os.PathLike[str] | IO[str] | IO[bytes]

#: What a broker does unless its file says otherwise, and a store of a program does not.
BROKERS_DEFAULTS: dict[str, Any] = {"clean_resource_enable": True, "timer_wheel_enable": True}
#: Spellings that the rule (a capital becomes an underscore and a small letter) does not give.
ALIASES = {
    "mapedFileSizeCommitLog": "mapped_file_size_commit_log",
    "mapedFileSizeConsumeQueue": "mapped_file_size_consume_queue",
    "enabledAppendPropCRC": "enabled_append_prop_crc",
    "forceVerifyPropCRC": "force_verify_prop_crc",
    "warmMappedFileEnable": "warm_maped_file_enable",
    "flushLeastPagesWhenWarmMappedFile": "flush_least_pages_when_warm_maped_file",
}
_SPELLED = {ALIASES[name]: name for name in ("enabledAppendPropCRC", "forceVerifyPropCRC")}
#: The two keys that make a broker's address.
ADDRESS_KEYS = ("brokerIP1", "listenPort")
_DEFAULT_PORT = "10911"
#: Largest configuration file that is read; a broker's is shorter.
_MOST_NBYTES = 16 << 20
_BYTE_ORDER_MARKS = ("\ufeff", "\xef\xbb\xbf")
#: What Java's ``String.trim`` takes off.
TRIMMED = "".join(map(chr, range(33)))
#: Wrong values that the text of an error lists.
_MOST_LISTED = 20
#: Length of an unknown key up to which a similar one is searched for.
_LONGEST_SIMILAR = 80

#: What stands for a wrong value of options that are checked together, so that the other one is
#: refused only if it is wrong by itself.
HARMLESS = {
    "max_hash_slot_num": 1, "max_index_num": 2,
    "max_error_rate_of_bloom_filter": 99, "expect_consumer_num_use_filter": 1,
}  # fmt: skip

Made = TypeVar("Made")
Use = Literal["used", "ignored", "unknown", "overridden"]


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One entry of a broker's configuration file, and what it means for a store.

    Attributes
    ----------
    key, value : str
        As the file has them, without escapes.
    line : int or None
        Line on which the entry begins, from 1; ``None`` if the source was a mapping.
    use : str
        ``"used"``: it sets ``option``. ``"ignored"``: RocketMQ knows the key, and it has no meaning
        here. ``"unknown"``: no version of RocketMQ reads it. ``"overridden"``: a later line sets
        the same option.
    option : str or None
        The field of ``MessageStoreConfig``.
    note : str
        Why it is ignored or overridden, or where RocketMQ reads the value differently; may be
        empty.
    """

    key: str
    value: str
    line: int | None
    use: Use
    option: str | None = None
    note: str = ""

    @property
    def suggestion(self) -> str | None:
        """The known key that an unknown one resembles, if any."""
        return similar_key(self.key) if self.use == "unknown" else None


@dataclass(frozen=True, slots=True)
class BrokerFile:
    """What was read: the values by field, and all entries in the order of the file."""

    options: dict[str, Any]
    entries: tuple[ConfigEntry, ...]
    path: str | None
    errors: tuple[ConfigError, ...] = ()

    def made(self, make: Callable[..., Made], options: Mapping[str, Any]) -> Made:
        """Return what ``make(**options)`` returns.

        Raises one ``ConfigError`` about all entries with wrong values: those of ``errors``, and
        those whose values ``make`` refuses, one after the other.
        """
        errors, left, wrong = list(self.errors), dict(options), set[str]()
        while True:
            try:
                made = make(**left)
            except ConfigError as error:
                entry = self._entry_about(error)
                option = str(error.key if entry is None else entry.option)
                if option not in wrong:
                    key, line = (error.key, None) if entry is None else (entry.key, entry.line)
                    errors.append(_error(str(error), self.path, line, key))
                if entry is None or option in wrong:
                    raise together(errors, self.path) from None
                wrong.add(option)
                left.pop(option, None)
                left |= {name: HARMLESS[name] for name in (option,) if name in HARMLESS}
            else:
                if errors:
                    raise together(errors, self.path)
                return made

    def _entry_about(self, error: ConfigError) -> ConfigEntry | None:
        """Return the entry that set the field of an error."""
        options = (error.key, "max_hash_slot_num") if error.key == "max_index_num" else (error.key,)
        found = (
            one
            for option in options
            for one in self.entries
            if one.use == "used" and one.option == option
        )
        return next(found, None)


def read(source: Source, kinds: Mapping[str, str]) -> BrokerFile:
    """Read a broker's file. Entries with values that cannot be read are in ``errors``.

    Parameters
    ----------
    source : mapping, path, text or file
        See ``MessageStoreConfig.from_properties``.
    kinds : mapping
        Annotation of each field, by name.
    """
    path = path_of(source)
    with naming(source):
        pairs, has_mark = pairs_of(source, path)
    options: dict[str, Any] = {}
    chosen: dict[str, int] = {}  # where the entry that sets an option is
    entries: list[ConfigEntry] = []
    errors: list[ConfigError] = []
    for at, pair in enumerate(pairs):
        try:
            entry = _entry(pair, kinds, path)
        except ConfigError as error:
            errors.append(error)
            entry = ConfigEntry(*pair, "ignored")
        if entry.option is not None:
            name = entry.key if entry.key in ADDRESS_KEYS else entry.option
            if name in chosen:
                entries[chosen[name]] = _overridden(entries[chosen[name]], entry)
            chosen[name] = at
        entries.append(entry)
    if has_mark and entries and entries[0].line == 1:
        entries[0] = _with_note(
            entries[0], "RocketMQ takes the byte order mark before it as part of the key"
        )
    for at in chosen.values():
        entry = entries[at]
        option = str(entry.option)
        if option != "store_host":
            try:
                options[option] = value_of(entry, kinds, path)
            except ConfigError as error:
                errors.append(error)
                options |= {name: HARMLESS[name] for name in (option,) if name in HARMLESS}
    try:
        address = _address(entries, path)
    except ConfigError as error:
        errors.append(error)
        address = None
    if address is not None:
        options["store_host"] = address
    return BrokerFile(options, tuple(entries), path, tuple(errors))


def together(errors: list[ConfigError], path: str | None) -> ConfigError:
    """Return one error about several, in the order of their lines; a single one as it is."""
    errors = sorted(errors, key=lambda error: error.line or 0)
    if len(errors) == 1:
        return errors[0]
    texts = [str(error) for error in errors[:_MOST_LISTED]]
    if len(errors) > _MOST_LISTED:
        texts.append(f"and {len(errors) - _MOST_LISTED:,} more wrong values")
    text, first = "\n".join(texts), errors[0]
    return ConfigError(text, path=path, line=first.line, key=first.key, errors=errors)


def write(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> str:
    """Return the text of a file that sets what differs from ``defaults``.

    Raises ``ConfigError`` for a text that begins or ends with a blank: no file can hold it.
    """
    lines = ["# Options that differ from a broker's defaults"]
    for name, value in values.items():
        if value == defaults[name]:
            continue
        if isinstance(value, bool):
            text = str(value).lower()
        elif isinstance(value, Mapping):
            text = json.dumps({topic: dict(table) for topic, table in value.items()})
        else:
            text = str(value)
        if text.strip(TRIMMED) != text:
            raise ConfigError(
                f"{name} is {text!r}; a file cannot hold blanks at the ends of a value", key=name
            )
        lines.append(f"{camel_case(name)}={java_properties.escape_value(text)}")
    return "\n".join(lines) + "\n"


def camel_case(name: str) -> str:
    """Return the key of a field in a broker's file."""
    return _SPELLED.get(name) or re.sub(r"_(\w)", lambda match: match[1].upper(), name)


def field_of(key: str) -> str:
    """Return the field that a key of a broker's file would set; RocketMQ minds capitals."""
    if key in ALIASES or key.islower():
        return ALIASES.get(key, key)
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", key).lower()
    return name if camel_case(name) == key else ""


def similar_key(key: str) -> str | None:
    """Return the known key that ``key`` resembles most, or ``None``."""
    import difflib

    if not 3 <= len(key) <= _LONGEST_SIMILAR:
        return None
    names = {name.lower(): name for name in known_keys()}
    plain = re.sub(r"[^a-z0-9]", "", key.lower())
    if plain in names:
        return names[plain]
    found = difflib.get_close_matches(plain, names, n=1, cutoff=0.85)
    return names[found[0]] if found else None


def _error(reason: str, path: str | None, line: int | None, key: str | None = None) -> ConfigError:
    place = "" if path is None else path if line is None else f"{path}:{line}"
    if path is None and line is not None:
        place = f"line {line}"
    named = key if key and (line is not None or not reason.startswith(key)) else ""
    if not named.isprintable():
        named = repr(named)
    text = ": ".join(part for part in (place, named, reason) if part)
    return ConfigError(text, path=path, line=line, key=key)


@contextlib.contextmanager
def naming(source: Source) -> Iterator[None]:
    """Add the file's name to a ``ConfigError`` of the block."""
    path = path_of(source)
    try:
        yield
    except ConfigError as error:
        raise _error(str(error), path, error.line, error.key) from None


def path_of(source: Source) -> str | None:
    """Return the path that a source is or was opened with, if any."""
    if isinstance(source, str):
        return None if "\n" in source or "\r" in source else source
    if isinstance(source, os.PathLike):
        return os.fsdecode(source)
    name = getattr(source, "name", None)
    return name if isinstance(name, str) else None


def pairs_of(source: Source, path: str | None) -> tuple[list[Pair], bool]:
    """Return the entries, and whether a byte order mark stood before them."""
    if isinstance(source, Mapping):
        return [(str(key), str(value), None) for key, value in source.items()], False
    text = text_of(source, path)
    mark = next((one for one in _BYTE_ORDER_MARKS if text.startswith(one)), "")
    if "\0" in text:
        line = text[: text.index("\0")].count("\n") + 1
        utf_16 = text.startswith(("\xff\xfe", "\xfe\xff"))
        raise ConfigError(
            "it is in UTF-16; save it as ASCII" if utf_16 else "a NUL byte: it is no configuration",
            line=line,
        )
    found = java_properties.parse(text[len(mark) :])
    return [(one.key, one.value, one.line) for one in found], bool(mark)


Pair = tuple[str, str, int | None]


def text_of(source: Any, path: str | None) -> str:
    """Return the text of a file, as RocketMQ decodes it."""
    if isinstance(source, str | os.PathLike) and path is not None:
        if "\0" in path:
            raise ConfigError(f"{path!r} is not a path")
        _refuse_odd_file(path)
        with open(path, "rb") as file:
            content: Any = file.read(_MOST_NBYTES + 1)
    elif isinstance(source, str | bytes | bytearray):
        content = source
    elif hasattr(source, "read"):
        content = _read_all(source)
    else:
        raise TypeError(f"a configuration cannot be read from {type(source).__name__}")
    if len(content) > _MOST_NBYTES:
        raise ConfigError(f"it has more than {_MOST_NBYTES:,} bytes, too many for a configuration")
    # RocketMQ reads every file as ISO-8859-1.
    return content if isinstance(content, str) else bytes(content).decode("iso-8859-1")


def _read_all(file: Any) -> Any:
    """Read a file object to its end, or a little more than is allowed."""
    parts = []
    nbytes = 0
    while nbytes <= _MOST_NBYTES and (part := file.read(_MOST_NBYTES + 1 - nbytes)):
        parts.append(part)
        nbytes += len(part)
    return (b"" if parts and isinstance(parts[0], bytes) else "").join(parts)


def _refuse_odd_file(path: str) -> None:
    """Raise ``ConfigError`` for a file that is not regular or too large to be a configuration.

    Reading a FIFO or a device may never end; the FIFO of a shell's ``<(command)`` has a writer.
    """
    status = os.stat(path)
    if path.startswith(("/dev/fd/", "/proc/self/fd/")) and stat.S_ISFIFO(status.st_mode):
        return
    if not stat.S_ISREG(status.st_mode):
        raise ConfigError("it is not a regular file")
    if status.st_size > _MOST_NBYTES:
        raise ConfigError(f"it has {status.st_size:,} bytes, too many for a configuration")


def _entry(pair: Pair, kinds: Mapping[str, str], path: str | None) -> ConfigEntry:
    """Return an entry with its use; raise ``ConfigError`` for what rocketstore cannot open."""
    key, value, line = pair
    option = field_of(key)
    if option in kinds:
        name = camel_case(option)
        note = "" if name == key else f"RocketMQ knows it as {name}"
        if name not in known_keys():
            note = "of rocketstore alone; a broker ignores it"
        entry = ConfigEntry(key, value, line, "used", option, note)
        odd = odd_reading(entry, kinds[option])
        return _with_note(entry, odd) if odd else entry
    if key in ADDRESS_KEYS:
        return ConfigEntry(key, value, line, "used", "store_host")
    if key == "enableDLegerCommitLog" and value.strip(TRIMMED).lower() == "true":
        raise _error("rocketstore does not support DLedger logs", path, line, key)
    known = known_keys().get(key)
    if known is None:
        return ConfigEntry(key, value, line, "unknown")
    words = [known.reason]
    if known.since or known.until:
        until = f" up to {known.until}" if known.until else ""
        words.append(f"RocketMQ{f' from {known.since}' if known.since else ''}{until}")
    return ConfigEntry(key, value, line, "ignored", None, "; ".join(words))


def odd_reading(entry: ConfigEntry, kind: str) -> str:
    """Return in which respect RocketMQ does not read this value as it seems to be meant."""
    trimmed = entry.value.strip(TRIMMED)
    if entry.value != trimmed and entry.line is not None:
        if kind.startswith("bool"):
            return "RocketMQ reads a value with blanks around it as false"
        if kind.startswith(("int", "float")):
            return "RocketMQ ignores a number with blanks around it"
        return "RocketMQ up to 5.1 keeps the blanks around the value"
    if entry.option == "read_only_commit_log_store_paths":
        return "counts only beside several folders in storePathCommitLog"
    if "path" in str(entry.option).split("_"):
        if re.search(r"\$\{?\w|^~|%\w+%", trimmed):
            return "RocketMQ does not expand variables: the folder has this name"
        if any("\x7f" < char < "\u0100" for char in trimmed):
            return "files are read as ISO-8859-1; for other characters write \\uXXXX"
        if trimmed and not os.path.isabs(trimmed):
            return "relative to the folder in which the process was started"
        if entry.option == "store_path_commit_log" and "," in trimmed:
            return "several folders: the store can be read, not written"
    return ""


def _overridden(entry: ConfigEntry, by: ConfigEntry) -> ConfigEntry:
    place = f"line {by.line}" if by.line is not None else by.key
    return ConfigEntry(
        entry.key, entry.value, entry.line, "overridden", entry.option, f"{place} sets it again"
    )


def _with_note(entry: ConfigEntry, note: str) -> ConfigEntry:
    notes = "; ".join(part for part in (entry.note, note) if part)
    return ConfigEntry(entry.key, entry.value, entry.line, entry.use, entry.option, notes)


def value_of(entry: ConfigEntry, kinds: Mapping[str, str], path: str | None) -> Any:
    """Return the value of a used entry as its field's type."""
    assert entry.option is not None
    text = entry.value.strip(TRIMMED)
    kind = kinds[entry.option].split(" ")[0]
    shown = repr(entry.value[:80])

    def refused(reason: str) -> ConfigError:
        head = f"{entry.key} = " if entry.line is None else ""
        return _error(f"{head}{shown} {reason}", path, entry.line, entry.key)

    if kind == "int":
        if not re.fullmatch(r"[+-]?[0-9]{1,20}", text):
            raise refused("is not a whole number")
        return int(text)
    if kind == "float":
        try:
            return float(text)
        except ValueError:
            raise refused("is not a number") from None
    if kind == "bool":
        if text.lower() not in ("true", "false"):
            raise refused("is neither true nor false; RocketMQ reads it as false")
        return text.lower() == "true"
    if entry.option == "topic_attributes":
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            raise refused("is not a table in JSON") from None
    if "\0" in text or not _is_encodable(text):
        raise refused("contains a NUL character or half a surrogate pair")
    return text


def _is_encodable(text: str) -> bool:
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def _address(entries: list[ConfigEntry], path: str | None) -> str | None:
    """Return the address that the entries give a broker; notes go into ``entries``."""
    given = {
        entry.key: at
        for at, entry in enumerate(entries)
        if entry.option == "store_host" and entry.use == "used"
    }
    own = next((key for key in given if key not in ADDRESS_KEYS), None)
    if own is not None:
        for key in ADDRESS_KEYS:
            if key in given:
                entries[given[key]] = _overridden(entries[given[key]], entries[given[own]])
        return entries[given[own]].value.strip(TRIMMED)
    if not given:
        return None
    host, port = "127.0.0.1", _DEFAULT_PORT
    if "listenPort" in given:
        entry = entries[given["listenPort"]]
        port = entry.value.strip(TRIMMED)
        if not re.fullmatch("[0-9]{1,5}", port) or int(port) > 0xFFFF:
            raise _error(f"{entry.value[:80]!r} is not a port", path, entry.line, entry.key)
    if "brokerIP1" in given:
        at = given["brokerIP1"]
        try:
            address = ipaddress.ip_address(entries[at].value.strip(TRIMMED))
        except ValueError:
            entry = entries[at]
            entries[at] = ConfigEntry(
                entry.key, entry.value, entry.line, "ignored", None, "it is not an IP address"
            )
        else:
            host = f"[{address}]" if address.version == 6 else str(address)
    return f"{host}:{int(port)}"
