"""Putting messages that come as lines of JSON, in the vocabulary in which they are written."""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from types import FrameType
from typing import IO, Any

import typer

from rocketstore import DefaultMessageStore, Message, formats
from rocketstore.cli.outcome import ExitCode, complain
from rocketstore.cli.output import Format, Rows, print_document, print_text
from rocketstore.cli.progress import Progress
from rocketstore.cli.quantities import counted, format_size
from rocketstore.cli.records import RESULT_NAMES, result_fields
from rocketstore.cli.table import Table
from rocketstore.errors import RocketStoreError

#: After so many messages what was put is synced, and is told to be so.
_MESSAGES_A_SYNC = 2000
_LONGEST_LINE_NBYTES = 64 * 1024 * 1024
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
#: Properties that are written as values of their own, too.
_PROPERTIES = {
    "tags": formats.PROPERTY_TAGS,
    "keys": formats.PROPERTY_KEYS,
    "uniqKey": formats.PROPERTY_UNIQUE_KEY,
}
#: Properties that the store makes itself where they belong.
_PROPERTIES_MADE_ANEW = (
    formats.PROPERTY_CRC32,
    formats.PROPERTY_INNER_BASE,
    formats.PROPERTY_INNER_MULTI_QUEUE_OFFSET,
)
_BODIES = ("body", "bodyBase64")
#: Given by the store when a message is put, so left out of what was written about another one.
_MADE_ANEW = {
    *("queueOffset", "physicalOffset", "storeSize", "storeTimestamp", "bodyCRC", "offsetMsgId"),
    *("bodySize", "raw"),
}


class LineError(ValueError):
    """A line that is no message."""


def message_of(line: bytes) -> Message:
    """Build the message that one line says. Raises ``LineError`` with the reason."""
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise LineError(f"no JSON: {error}") from None
    if not isinstance(fields, dict):
        raise LineError("no JSON object")
    unknown = fields.keys() - _PLAIN.keys() - _PROPERTIES.keys() - _MADE_ANEW
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


def _typed(fields: dict[str, Any], name: str, kind: type) -> Any:
    value = fields[name]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise LineError(f"{name} is {value!r}, which is no {kind.__name__}")
    return value


def _body(fields: dict[str, Any]) -> bytes:
    given = [name for name in _BODIES if fields.get(name) is not None]
    if len(given) > 1:
        raise LineError("both body and bodyBase64")
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
        raise LineError("properties is no JSON object")
    for name, value in properties.items():
        if not isinstance(value, str):
            raise LineError(f"property {name!r} is {value!r}, which is no str")
    for name, key in _PROPERTIES.items():
        if fields.get(name) is None:
            continue
        value = _typed(fields, name, str)
        if properties.setdefault(key, value) != value:
            raise LineError(f"{name} is {value!r}, but property {key} is {properties[key]!r}")
    for name in _PROPERTIES_MADE_ANEW:
        properties.pop(name, None)
    if properties.get(formats.PROPERTY_REAL_TOPIC) == fields["topic"]:
        # It was delayed and delivered already; its level would have it delayed again.
        properties.pop(formats.PROPERTY_DELAY, None)
    return properties


class _Interrupts:
    """Ctrl-C while a line is waited for ends it at once, while one is put: behind that one."""

    def __init__(self) -> None:
        self.wanted = False
        self._may_raise = False
        self._old: Any = None

    def __enter__(self) -> _Interrupts:
        with contextlib.suppress(ValueError):  # not the main thread: nobody interrupts it
            self._old = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        if self._old is not None:
            signal.signal(signal.SIGINT, self._old)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.wanted = True
        if self._may_raise:
            raise KeyboardInterrupt

    def lines(self, file: IO[bytes]) -> Iterator[bytes]:
        """Yield the lines; raise ``KeyboardInterrupt`` between two of them when it is wanted."""
        while True:
            self._may_raise = True
            if self.wanted:
                raise KeyboardInterrupt
            line = file.readline(_LONGEST_LINE_NBYTES + 1)
            self._may_raise = False
            if not line:
                return
            yield line


class _Putter:
    """Puts line by line, and knows what of it is on disk."""

    def __init__(self, store: DefaultMessageStore, out: Rows | None) -> None:
        self.stored = 0
        self.nbytes = 0
        self.done_lines = 0
        self.durable_lines = 0
        self.begin_offset: int | None = None
        self._store = store
        self._out = out
        self._results: list[Any] = []

    def put(self, line: bytes) -> str | None:
        """Put one line's message; the reason when it cannot be put."""
        if len(line) > _LONGEST_LINE_NBYTES:
            return f"longer than {format_size(_LONGEST_LINE_NBYTES)}"
        if line.strip():
            try:
                result = self._store.put_message(message_of(line))
            except (ValueError, TypeError) as error:
                return str(error)
            if not result.ok:
                return f"the store answers {result.status.name}"
            self._take(result)
        self.done_lines += 1
        return None

    def _take(self, result: Any) -> None:
        self.stored += 1
        self.nbytes += result.nbytes
        if self.begin_offset is None:
            self.begin_offset = result.physical_offset
        if self._out is not None:
            self._results.append(result)
        if self.stored % _MESSAGES_A_SYNC == 0:
            self.sync()

    def sync(self) -> None:
        """Sync what was put, and say so."""
        self._store.flush()
        self.durable_lines = self.done_lines
        if self._out is not None:
            results, self._results = self._results, []
            for result in results:
                self._out.write(result)
            self._out.flush()

    def summary(self) -> dict[str, Any]:
        """What was done, by name."""
        return {
            "lines": self.done_lines,
            "stored": self.stored,
            "bytes": self.nbytes,
            "firstPhysicalOffset": self.begin_offset,
            "endPhysicalOffset": self._store.max_physical_offset,
        }


def put_lines(
    store: DefaultMessageStore,
    source: str,
    form: Format,
    *,
    skip: int,
    each: bool,
    progress: Progress | None,
) -> None:
    """Put every message of the file ``source`` (``-``: stdin) behind its first ``skip`` lines."""
    table = Table(RESULT_NAMES, right=("physicalOffset", "queueOffset", "storeSize"))
    rows = Rows(form, RESULT_NAMES, table=table, row=_cells, document=result_fields)
    putter = _Putter(store, rows if each else None)
    reason: str | None = None
    interrupted = False
    with _opened(source) as (file, total), _Interrupts() as interrupts:
        read = 0
        try:
            for number, line in enumerate(interrupts.lines(file), start=1):
                read += len(line)
                if progress is not None and total and number % 1000 == 0:
                    progress("putting lines", read, total)
                if number <= skip:
                    putter.done_lines = putter.durable_lines = number
                    continue
                reason = putter.put(line)
                if reason is not None:
                    break
        except KeyboardInterrupt:
            interrupted = True
        except (RocketStoreError, OSError):
            complain(f"lines up to {putter.durable_lines} are on disk; --skip goes on behind them")
            raise
    putter.sync()
    if each:
        rows.close()
    elif not print_document(putter.summary(), form):
        size = format_size(putter.nbytes)
        print_text(f"{counted(putter.stored, 'message')} stored ({size} of log)")
    _end(source, putter.done_lines, reason, interrupted=interrupted)


def _end(source: str, done: int, reason: str | None, *, interrupted: bool) -> None:
    if interrupted:
        complain(f"interrupted; {counted(done, 'line')} done, --skip {done} goes on")
        raise typer.Exit(int(ExitCode.INTERRUPTED))
    if reason is not None:
        name = "stdin" if source == "-" else source
        complain(f"{name}, line {done + 1}: {reason}")
        complain(f"what stood in front of it is stored; --skip {done} goes on with this line")
        refused = reason.startswith("the store answers")
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
