"""Cases for the Python readers: checkpoint, state file, the broker's tables, ext units, timer."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy
from kernel_seeds import load, mutate, mutate_fields, number
from timer_cases import check_timer, timer_input

from rocketstore import config_managers, formats
from rocketstore.config_managers import files as config_files
from rocketstore.config_managers import json_dialect
from rocketstore.directory.checkpoint import StoreCheckpoint, signed_crc
from rocketstore.directory.state import StoreState
from rocketstore.errors import RocketStoreError
from rocketstore.queues.consume_queue_ext import ConsumeQueueExt

_DOCUMENTED = (RocketStoreError, OSError, ValueError)
_MANAGERS: tuple[type[config_managers.ConfigManager], ...] = (
    config_managers.TopicConfigManager,
    config_managers.SubscriptionGroupManager,
    config_managers.ConsumerOffsetManager,
    config_managers.LmqConsumerOffsetManager,
    config_managers.DelayOffsetManager,
    config_managers.ConsumerFilterManager,
)
_PIECES = (
    *(b"{", b"}", b"[", b"]", b",", b":", b'"', b"'", b"\\", b"/*", b"*/", b"//", b"\n", b" "),
    *(b"null", b"true", b"1e999", b"-", b"+1", b".5", b"1.", b"9" * 45, b"0x1", b"NaN", b"\xff"),
    *(b'"\\ud800"', b'"\\u0000"', b'{"$ref":"$"}', b'{"$ref":"$.a[0]"}', b'{"$ref":"$.a"}'),
    *(b'"$ref"', b'"a":', b"\xef\xbb\xbf", b'"\\x41"', b"[" * 120, b'{"a":' * 60, b'"a":1,"a":2'),
    *(b'"dataVersion":', b'"topicConfigTable":', b'"attributes":', b'"offsetTable":', b'""'),
)
_STATE = StoreState(
    flushed_offset=4096, dispatched_offset=4096, indexed_offset=4096, log_end_offset=4096,
    commit_log_file_size=16384, consume_queue_file_size=320, hash_slot_num=50, index_num=200,
    clean=True, queue_count=3, queue_crc=-7, index_file_count=1, checkpoint_crc=12,
    broker_version="5.3.3", timezone="Europe/Berlin",
).to_bytes()  # fmt: skip


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise AssertionError(what)


def check_checkpoint(content: bytes) -> None:
    """Check that a checkpoint is written as it was read."""
    found = StoreCheckpoint.from_bytes(content)
    nbytes = formats.CHECKPOINT.nbytes
    written = found.to_bytes()
    _require(written[:nbytes] == content[:nbytes].ljust(nbytes, b"\0"), "a checkpoint changed")
    _require(StoreCheckpoint.from_bytes(written) == found, "a checkpoint reads differently")


def check_state(content: bytes) -> None:
    """Check that only a complete state file is accepted, and that it reads back the same."""
    found = StoreState.from_bytes(content)
    at = formats.STORE_STATE.at("crc")
    crc = signed_crc(content[:at]).to_bytes(4, "big", signed=True)
    whole = len(content) == at + 4 and content.startswith(formats.STATE_MAGIC)
    _require(found is not None or content != _STATE, "a good state file is refused")
    if found is None:
        return
    _require(whole and content[at:] == crc, "a bad state file is accepted")
    if found.timezone.isascii():
        again = StoreState.from_bytes(found.to_bytes())
        _require(again == found, "a state file reads back differently")


def check_json(content: bytes) -> None:
    """Check that reading returns a value or raises one error, and that values read back."""
    try:
        value = json_dialect.loads(content)
    except json_dialect.JsonDialectError as error:
        _require(0 <= error.position <= len(content), f"position {error.position}")
        value = None
    _require(_finite(value), "a number that JSON cannot write")
    written = json_dialect.dumps(value).encode("ascii")
    _require(json_dialect.loads(written) == value, "a value reads back differently")
    try:
        plain = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError):
        return
    if b"$ref" not in content and _same_in_both(plain, content):
        try:
            _require(json_dialect.loads(content) == plain, "plain JSON reads differently")
        except json_dialect.JsonDialectError as error:
            _require(_is_limit(error), f"plain JSON is refused: {error}")


def _finite(value: Any) -> bool:
    if isinstance(value, dict):
        return all(_finite(item) for item in value.values())
    if isinstance(value, list):
        return all(_finite(item) for item in value)
    return not isinstance(value, float) or math.isfinite(value)


def _same_in_both(plain: Any, content: bytes) -> bool:
    # The dialect reads half a surrogate pair as U+FFFD: a UTF-8 file cannot hold it.
    surrogates = any("\ud800" <= letter <= "\udfff" for letter in _texts(plain))
    constants = any(word in content for word in (b"NaN", b"Infinity"))
    return _finite(plain) and not surrogates and not constants


def _texts(value: Any) -> str:
    """Return all texts in a value, joined."""
    if isinstance(value, dict):
        return "".join(key + _texts(item) for key, item in value.items())
    if isinstance(value, list):
        return "".join(map(_texts, value))
    return value if isinstance(value, str) else ""


def _is_limit(error: json_dialect.JsonDialectError) -> bool:
    words = ("more than", "characters", "too large")
    return any(word in error.reason for word in words)


def check_tables(content: bytes) -> None:
    """Check that each table accepts the content or raises, and reads back what it writes."""
    for kind in _MANAGERS:
        manager = kind("/nowhere", clock=lambda: 1_700_000_000_000)
        before = manager.encode()
        try:
            manager.decode(content)
        except (json_dialect.JsonDialectError, config_files.ContentError):
            _require(manager.encode() == before, f"a refused {kind.__name__} changed")
            continue
        text = manager.encode()
        again = kind("/nowhere", clock=lambda: 1_700_000_000_000)
        again.decode(text)
        _require(again.encode() == text, f"{kind.__name__} reads back differently")


def check_files(content: bytes) -> None:
    """Check the same through files, with a ``.bak`` of half the bytes."""
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        folder = root / formats.CONFIG_DIR
        folder.mkdir()
        (folder / "topics.json").write_bytes(content)
        (folder / "topics.json.bak").write_bytes(content[: len(content) // 2])
        (root / formats.STATE_FILE).write_bytes(content)
        StoreState.read(root / formats.STATE_FILE, root)
        StoreCheckpoint.read(root / formats.STATE_FILE, root)
        notes: list[str] = []
        config_files.topic_attributes(root, notes)
        try:
            config_files.topic_attributes(root)
        except RocketStoreError:
            _require(bool(notes), "no note about a file that cannot be read")


def _json_input(random: Random) -> bytes:
    seed = random.choice(load().tables)
    content = bytearray(mutate(random, seed, 3))
    for _ in range(random.randint(0, 4)):
        at = random.randint(0, len(content))
        content[at : at + random.choice((0, 0, 1, 8))] = random.choice(_PIECES)
    if random.random() < 0.2:
        content = bytearray(b"".join(random.choices(_PIECES, k=random.randint(0, 12))))
    return bytes(content)


def _state_input(random: Random) -> bytes:
    content = mutate_fields(random, _STATE, 8) if random.random() < 0.5 else mutate(random, _STATE)
    if random.random() < 0.5:
        crc = signed_crc(content[: formats.STORE_STATE.at("crc")])
        content = content[: formats.STORE_STATE.at("crc")] + crc.to_bytes(4, "big", signed=True)
    return content


def _checkpoint_input(random: Random) -> bytes:
    return mutate(random, random.choice(load().checkpoints)[: random.choice((4096, 48, 60))])


#: For each kind of input: how to check it, and how to generate it.
CHECKS: dict[str, tuple[Callable[[bytes], None], Callable[[Random], bytes]]] = {
    "checkpoint": (check_checkpoint, _checkpoint_input),
    "state": (check_state, _state_input),
    "json": (check_json, _json_input),
    "tables": (check_tables, _json_input),
    "files": (check_files, _json_input),
    "timer": (check_timer, timer_input),
}


def _case(name: str) -> Callable[[Random, Any], None]:
    check, make = CHECKS[name]

    def case(random: Random, runner: Any) -> None:
        runner.calls += 1
        ask(check, make(random))

    return case


def ask(check: Callable[[bytes], None], content: bytes) -> None:
    """Check one input; raise a finding for an undocumented error."""
    from kernel_cases import FindingError

    try:
        check(content)
    except _DOCUMENTED as error:
        if check is not check_files:
            raise FindingError(f"{check.__name__}({content!r}) raised {error!r}") from error
    except Exception as error:
        raise FindingError(f"{check.__name__}({content!r}) raised {error!r}") from error


def ext(random: Random, runner: Any) -> None:
    """Check that ext units read one at a time and many at once agree."""
    runner.calls += 1
    nbytes = formats.CONSUME_QUEUE_EXT_UNIT.nbytes
    content = mutate_fields(random, random.choice(load().ext_files), nbytes)
    file = SimpleNamespace(file_from_offset=0, file_size=len(content), private=True)
    file.mapping = content
    second = SimpleNamespace(**{**vars(file), "file_from_offset": len(content)})
    files = SimpleNamespace(file_size=len(content))
    files.find_mapped_file_by_offset = lambda at: (
        file if at < len(content) else second if at < 2 * len(content) else None
    )
    units = ConsumeQueueExt(files)  # type: ignore[arg-type] - all that reading needs
    offsets = [random.randint(0, 2 * len(content) // nbytes) * nbytes for _ in range(9)]
    offsets += [max(0, number(random)) for _ in range(2)]
    codes = [min(at + formats.EXT_ADDRESS_BASE, formats.MAX_EXT_ADDRESS) for at in offsets]
    addresses = numpy.array(codes, "i8")
    heads = units.heads(addresses)
    for address, head in zip(codes, heads, strict=True):
        unit = units.unit(address)
        if unit is not None and (head["size"], head["tags_code"]) != (unit.nbytes, unit.tags_code):
            from kernel_cases import FindingError

            raise FindingError(f"ext unit at {address}: {head!r} is not {unit!r}")
    units.first_bad(addresses)


CASES: dict[str, Callable[[Random, Any], None]] = {
    **{name: _case(name) for name in CHECKS},
    "ext": ext,
}
