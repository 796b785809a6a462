"""Put messages from lines of JSON, with the names that all exports use."""

from __future__ import annotations

import base64
import binascii
import codecs
import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import IO, Any

import typer

from rocketstore import formats
from rocketstore.arguments import Progress
from rocketstore.cli.commands.put_refusals import why_refused
from rocketstore.cli.common.outcome import (
    ExitCode,
    answering,
    complain,
    exit_code_of,
    fail,
    words_of,
)
from rocketstore.cli.common.output import Format, Rows, print_document, print_text
from rocketstore.cli.common.quantities import counted, format_size
from rocketstore.cli.common.records import RESULT_NAMES, result_fields
from rocketstore.cli.common.streams import OUTPUT_NAME, drop
from rocketstore.cli.common.table import Table
from rocketstore.cli.common.text import is_utf8
from rocketstore.errors import RocketStoreError, StoreFullError
from rocketstore.message import Message
from rocketstore.store.default_message_store import DefaultMessageStore

#: Messages between two syncs; each sync makes them durable and reports them.
_MESSAGES_A_SYNC = 2000
_LONGEST_LINE_NBYTES = 64 * 1024 * 1024
_ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, *filter(None, [getattr(signal, "SIGHUP", None)]))
_PLAIN = {
    "topic": ("topic", str),
    "queueId": ("queue_id", int),
    "flag": ("flag", int),
    "sysFlag": ("sys_flag", int),
    "bornTimestamp": ("born_timestamp", int),
    "bornHost": ("born_host", str),
    "storeHost": ("store_host", str),
    "reconsumeTimes": ("reconsume_times", int),
    "preparedTransactionOffset": ("prepared_transaction_offset", int),
}
#: Properties that exports also write as values of their own.
_PROPERTIES = {
    "tags": formats.PROPERTY_TAGS,
    "keys": formats.PROPERTY_KEYS,
    "uniqKey": formats.PROPERTY_UNIQUE_KEY,
}
#: Properties that the store sets itself where they belong.
_ASSIGNED_PROPERTIES = (
    formats.PROPERTY_CRC32,
    formats.PROPERTY_INNER_BASE,
    formats.PROPERTY_INNER_MULTI_QUEUE_OFFSET,
)
_BODIES = ("body", "bodyBase64")
#: Values that the store assigns at a put, so those of the exported message are ignored.
_ASSIGNED = {
    *("queueOffset", "physicalOffset", "storeSize", "storeTimestamp", "bodyCRC", "offsetMsgId"),
    *("bodySize", "raw"),
}


class LineError(ValueError):
    """A line that is not a message."""


def message_of(line: bytes) -> Message:
    """Build the message of one line. Raises ``LineError`` with the reason."""
    text = _text(line)
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise LineError(f"not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise LineError("not a JSON object")
    unknown = fields.keys() - _PLAIN.keys() - _PROPERTIES.keys() - _ASSIGNED
    unknown -= {*_BODIES, "properties"}
    if unknown:
        raise LineError(f"unknown name {min(unknown)!r}")
    if "topic" not in fields:
        raise LineError("no topic")
    values = {
        argument: _typed(fields, name, kind)
        for name, (argument, kind) in _PLAIN.items()
        if fields.get(name) is not None
    }
    try:
        return Message(body=_body(fields), properties=_properties(fields), **values)
    except (ValueError, TypeError, OverflowError) as error:
        raise LineError(str(error)) from None


#: First bytes of files that are not UTF-8 text, and what they indicate.
_MARKS = (
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
    (b"\x1f\x8b", "a gzip file"),
    (b"PK\x03\x04", "a zip file"),
    (b"\x28\xb5\x2f\xfd", "a zstd file"),
    (b"PAR1", "a Parquet file"),
)


def _text(line: bytes) -> str:
    """Decode the line. Raises ``LineError``; other encodings are reported, not decoded."""
    looks = next((name for mark, name in _MARKS if line.startswith(mark)), "")
    if not looks and b"\0" in line:
        zeros = line.count(b"\0")
        looks = "UTF-16" if abs(2 * zeros - len(line)) <= len(line) // 5 + 2 else "a binary file"
    try:
        text = line.removeprefix(codecs.BOM_UTF8).decode("utf-8")
    except UnicodeDecodeError as error:
        hint = f" (it looks like {looks})" if looks else ""
        where = f"byte {error.start + 1} is 0x{line[error.start]:02x}"
        raise LineError(f"it is not UTF-8: {where}{hint}") from None
    if looks:
        raise LineError(f"it is not a line of UTF-8 text (it looks like {looks})")
    return text


def _typed(fields: dict[str, Any], name: str, kind: type) -> Any:
    value = fields[name]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise LineError(f"{name} is {value!r}; it must be {kind.__name__}")
    if isinstance(value, str) and not is_utf8(value):
        raise LineError(f"{name} is {value!r}, which is not UTF-8")
    return value


def _body(fields: dict[str, Any]) -> bytes:
    given = [name for name in _BODIES if fields.get(name) is not None]
    if len(given) > 1:
        raise LineError("both body and bodyBase64 are given")
    if not given:
        return b""
    text = _typed(fields, given[0], str)
    try:
        if given[0] == "body":
            return bytes(text.encode("utf-8"))
        return base64.b64decode(text, validate=True)
    except (UnicodeEncodeError, binascii.Error, ValueError) as error:
        raise LineError(f"{given[0]}: {error}") from None


def _properties(fields: dict[str, Any]) -> dict[str, str]:
    properties = fields.get("properties") or {}
    if not isinstance(properties, dict):
        raise LineError("properties is not a JSON object")
    for name, value in properties.items():
        if not isinstance(value, str):
            raise LineError(f"property {name!r} is {value!r}; it must be str")
        if not is_utf8(name) or not is_utf8(value):
            raise LineError(f"property {name!r} is {value!r}, which is not UTF-8")
    for name, key in _PROPERTIES.items():
        if fields.get(name) is None:
            continue
        value = _typed(fields, name, str)
        if properties.setdefault(key, value) != value:
            raise LineError(f"{name} is {value!r}, but property {key} is {properties[key]!r}")
    for name in _ASSIGNED_PROPERTIES:
        properties.pop(name, None)
    if properties.get(formats.PROPERTY_REAL_TOPIC) == fields["topic"]:
        # The message was already delayed and delivered; its level would delay it again.
        properties.pop(formats.PROPERTY_DELAY, None)
    return properties


class _Interrupts:
    """Handles Ctrl-C and termination signals: at once while waiting for a line, after the put
    while one is running."""

    def __init__(self) -> None:
        #: The signal that arrived; 0 for none.
        self.wanted = 0
        self._may_raise = False
        self._old: dict[int, Any] = {}

    def __enter__(self) -> _Interrupts:
        for number in _ENDING_SIGNALS:
            with contextlib.suppress(ValueError):  # only the main thread receives signals
                if signal.getsignal(number) != signal.SIG_IGN:  # as under nohup
                    self._old[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, old in self._old.items():
            signal.signal(number, old)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.wanted = self.wanted or number
        if self._may_raise:
            self._may_raise = False
            raise KeyboardInterrupt

    def lines(self, file: IO[bytes]) -> Iterator[bytes]:
        """Yield the lines; raise ``KeyboardInterrupt`` between two lines after a signal."""
        while True:
            self._may_raise = True
            if self.wanted:
                self._may_raise = False
                raise KeyboardInterrupt
            line = file.readline(_LONGEST_LINE_NBYTES + 1)
            self._may_raise = False
            if not line:
                return
            yield line


class _Putter:
    """Puts line by line, and tracks which lines are on disk.

    Attributes
    ----------
    done_lines, durable_lines : int
        Number of lines whose messages the store accepted, and of those that are on disk.
    """

    def __init__(self, store: DefaultMessageStore, out: Rows | None, most: int) -> None:
        self.stored = 0
        self.nbytes = 0
        self.done_lines = 0
        self.durable_lines = 0
        self.begin_offset: int | None = None
        self.end_offset = store.max_physical_offset
        self._store = store
        self._most = most
        self._out = out
        self._results: list[Any] = []

    def put(self, line: bytes) -> str | None:
        """Put one line's message; return the reason if that fails."""
        if len(line) > _LONGEST_LINE_NBYTES:
            return f"longer than {format_size(_LONGEST_LINE_NBYTES)}"
        if line.strip():
            try:
                message = message_of(line)
                result = self._store.put_message(message)
            except (ValueError, TypeError) as error:
                return str(error)
            if not result.ok:
                return "the store answered " + why_refused(
                    self._store, self._most, result, message.topic, message.body, message.properties
                )
            self._take(result)
        self.done_lines += 1
        return None

    def skip(self) -> None:
        """Skip a line."""
        self.done_lines += 1
        self.durable_lines += 1

    def _take(self, result: Any) -> None:
        self.stored += 1
        self.nbytes += result.nbytes
        self.end_offset = result.physical_offset + result.nbytes
        if self.begin_offset is None:
            self.begin_offset = result.physical_offset
        if self._out is not None:
            self._results.append(result)

    def sync_at_times(self) -> None:
        """Sync after every ``_MESSAGES_A_SYNC`` messages."""
        if self.stored % _MESSAGES_A_SYNC == 0 and self.durable_lines < self.done_lines:
            self.sync()

    def sync(self) -> None:
        """Sync what was put, and write the answers."""
        try:
            self._store.flush()
        except StoreFullError:
            if self._store.flushed_offset < self.end_offset:
                raise
            # The messages are on disk; only derived files had no space, and they are rebuilt.
        self.durable_lines = self.done_lines
        if self._out is not None:
            results, self._results = self._results, []
            for result in results:
                self._out.write(result)
            self._out.flush()

    def summary(self) -> dict[str, Any]:
        """Return what was done, by JSON names."""
        return {
            "lines": self.done_lines,
            "stored": self.stored,
            "bytes": self.nbytes,
            "firstPhysicalOffset": self.begin_offset,
            "endPhysicalOffset": self.end_offset,
        }


@dataclass
class _Ending:
    """How the command ended; nothing is set if all lines were put."""

    #: Why a line is not a message, or was refused.
    reason: str | None = None
    #: An error of the store, or of writing the answers.
    failure: Exception | None = None
    #: Whether the error occurred while a line was put.
    at_line: bool = False
    interrupted_by: int = 0


def put_lines(
    open_store: Callable[[], DefaultMessageStore],
    source: str,
    form: Format,
    skip: int,
    max_message_size: int,
    *,
    each: bool,
    progress: Progress | None,
) -> None:
    """Put every message of the file ``source`` (``-``: stdin) after its first ``skip`` lines.

    However it ends, stored messages are synced, and the message gives the ``--skip`` that stores
    nothing twice.
    """
    table = Table(RESULT_NAMES, right=("physicalOffset", "queueOffset", "storeSize"))
    rows = Rows(form, RESULT_NAMES, table=table, row=_cells, document=result_fields)
    with _opened(source) as (file, total), _Interrupts() as interrupts, open_store() as store:
        putter = _Putter(store, rows if each else None, max_message_size)
        lines = _counted(interrupts.lines(file), total, progress)
        ending = _put_all(putter, interrupts, lines, skip)
        _finish(putter, store, ending)
    name = "stdin" if source == "-" else source
    if not _is_of_output(ending.failure):
        with answering(_how_far(putter)):
            if each:
                rows.close()
            elif not print_document(putter.summary(), form):
                size = format_size(putter.nbytes)
                print_text(f"{counted(putter.stored, 'message')} stored ({size} of log)")
    _report(name, putter, ending)


def _counted(
    lines: Iterable[bytes], total: int, progress: Progress | None
) -> Iterator[tuple[int, bytes]]:
    """Number the lines, and report how far they have been read."""
    read = 0
    for number, line in enumerate(lines, start=1):
        read += len(line)
        if progress is not None and total and number % 1000 == 0:
            progress("putting lines", read, total)
        yield number, line


def _put_all(
    putter: _Putter,
    interrupts: _Interrupts,
    lines: Iterable[tuple[int, bytes]],
    skip: int,
) -> _Ending:
    """Put line by line until a line fails, an error occurs, or a signal interrupts."""
    ending = _Ending()
    try:
        for number, line in lines:
            if number <= skip:
                putter.skip()
                continue
            ending.at_line = True
            ending.reason = putter.put(line)
            if ending.reason is not None:
                break
            ending.at_line = False
            putter.sync_at_times()
    except KeyboardInterrupt:
        ending.interrupted_by = interrupts.wanted or signal.SIGINT
    except (RocketStoreError, OSError) as error:
        ending.failure = error
    return ending


def _finish(putter: _Putter, store: DefaultMessageStore, ending: _Ending) -> None:
    """Sync what was put, and close the store; keep the first error."""
    for step in (putter.sync, store.close):
        try:
            step()
        except StoreFullError as error:
            if putter.durable_lines < putter.done_lines:
                ending.failure = ending.failure or error
            elif ending.failure is None:
                complain(f"the disk is too full for the store's final state, so the next opening "
                         f"takes longer: {words_of(error)}")  # fmt: skip
        except (RocketStoreError, OSError) as error:
            ending.failure = ending.failure or error


def _is_of_output(error: Exception | None) -> bool:
    return isinstance(error, OSError) and error.filename == OUTPUT_NAME


def _how_far(putter: _Putter) -> str:
    """Return what is stored, and the ``--skip`` that stores nothing twice."""
    done, durable = putter.done_lines, putter.durable_lines
    if durable == done:
        return f"lines up to {done} are on disk; --skip {done} continues after them"
    return (
        f"lines up to {durable} are on disk; later ones up to {done} may be lost, as their sync "
        "failed: check what the store holds (`rocketstore tail`) before you continue"
    )


def _report(name: str, putter: _Putter, ending: _Ending) -> None:
    """Report why it ended before the last line, and exit accordingly."""
    if ending.failure is not None:
        if _is_of_output(ending.failure):
            drop(sys.stdout)
        place = f"{name}, line {putter.done_lines + 1}: " if ending.at_line else ""
        complain(f"{place}{words_of(ending.failure)}")
        raise fail(exit_code_of(ending.failure), _how_far(putter)) from ending.failure
    done = putter.done_lines
    if ending.interrupted_by:
        complain(f"interrupted; {counted(done, 'line')} done, --skip {done} continues")
        raise typer.Exit(128 + ending.interrupted_by)
    if ending.reason is not None:
        complain(f"{name}, line {done + 1}: {ending.reason}")
        complain(f"the lines before it are stored; --skip {done} continues with this line")
        refused = ending.reason.startswith("the store answered")
        raise typer.Exit(int(ExitCode.FINDINGS if refused else ExitCode.USAGE))


def _cells(result: Any) -> list[Any]:
    return list(result_fields(result).values())


@contextlib.contextmanager
def _opened(source: str) -> Iterator[tuple[IO[bytes], int]]:
    if source == "-":
        yield sys.stdin.buffer, 0
        return
    with open(source, "rb") as file:
        yield file, os.fstat(file.fileno()).st_size
