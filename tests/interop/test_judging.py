"""The judgement of whole stores: files that RocketMQ changed, damage, expiry. No Java is needed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from interop import case_damage, index_files
from interop.case_java_writes import check_acknowledged
from interop.cases import Asked, Outcome, check_opening, without_empty_files
from interop.expiry import expire
from interop.workload import make_job
from rocketstore import formats

# --- files -------------------------------------------------------------------------------------

SLOTS = 8


def index_file(entries: list[tuple[int, int]], begin: int = 1000) -> bytes:
    """An index file with entries of (hash, log offset)."""
    slots, rows, used = [0] * SLOTS, [bytes(formats.INDEX_ENTRY.nbytes)], 0
    for number, (key_hash, offset) in enumerate(entries, 1):
        slot = key_hash % SLOTS
        rows.append(formats.INDEX_ENTRY.struct.pack(key_hash, offset, 0, slots[slot]))
        used += slots[slot] == 0
        slots[slot] = number
    offsets = entries[0][1], entries[-1][1]
    header = formats.INDEX_HEADER.struct.pack(begin, begin, *offsets, used, len(entries) + 1)
    table = b"".join(formats.INDEX_SLOT.struct.pack(slot) for slot in slots)
    return header + table + b"".join(rows)


OLD = [(3, 0), (5, 100), (11, 200), (6, 200)]
LAST = [(11, 200), (6, 200)]


def files(*contents: bytes) -> dict[str, bytes]:
    return {f"index/{number}": data for number, data in enumerate(contents)} | {"commitlog/0": b""}


def is_known(*contents: bytes, before: dict[str, bytes] | None = None) -> bool:
    return index_files.is_last_again(before or files(index_file(OLD)), files(*contents), SLOTS)


def test_the_last_record_indexed_again_is_known() -> None:
    assert is_known(index_file(OLD + LAST))
    assert is_known(index_file(OLD + LAST[::-1]))
    # The second half has gone to a new file.
    assert is_known(index_file(OLD + LAST[:1]), index_file(LAST[1:]))
    assert is_known(index_file(OLD), index_file(LAST))


def test_index_files_of_one_name_are_known() -> None:
    first, second, third = index_file(OLD), index_file([(3, 300), (6, 300)]), index_file(LAST)

    def named_twice(theirs: list[bytes], our: list[bytes]) -> bool:
        sides = (index_files.parsed(files(*side), SLOTS) for side in (theirs, our))
        return index_files.is_named_twice(*sides)

    # The slots of the first are left: a link to its entry 1, and a slot that is not counted.
    over = bytearray(second)
    formats.INDEX_ENTRY.struct.pack_into(
        over, len(over) - 2 * formats.INDEX_ENTRY.nbytes, 3, 300, 0, 1
    )
    count = len(formats.INDEX_HEADER.struct.pack(0, 0, 0, 0, 0, 0)) - 8
    over[count : count + 4] = (1).to_bytes(4, "big")
    assert named_twice([bytes(over), third], [first, second, third])
    assert not named_twice([first, second, third], [first, second, third]), "no difference"
    assert not named_twice([third], [first, second, third]), "two are gone"
    assert not named_twice([bytes(over)], [first, second, third]), "the last is gone"
    assert not named_twice([first, bytes(over)], [first, second]), "the first is still there"


def test_other_changes_of_index_files_are_not() -> None:
    for entries in (
        *(OLD, OLD[:-1], OLD + LAST[:1], OLD + LAST + LAST, [*OLD, (5, 100)]),
        *([*OLD, (11, 200), (7, 200)], [*OLD, (11, 300), (6, 300)], [(4, 0), *OLD[1:], *LAST]),
        [(3, 1), *OLD[1:], *LAST],
    ):
        assert not is_known(index_file(entries)), entries
    assert not is_known(), "the file is gone"
    assert not is_known(index_file(OLD + LAST, begin=1001)), "another time"
    assert not is_known(index_file(OLD + LAST), index_file(OLD)), "another file"
    next_one = [(2, 300), (5, 400)]
    two = files(index_file(OLD), index_file(next_one))
    again = index_file([*next_one, next_one[-1]])
    spoilt = index_file([*OLD[:1], (5, 101), *OLD[2:]])
    assert is_known(index_file(OLD), again, before=two)
    assert not is_known(spoilt, again, before=two)
    assert not is_known(index_file(OLD + LAST), index_file(next_one), before=two)
    assert not is_known(index_file(OLD), before=two)


def test_no_byte_of_what_was_there_may_change() -> None:
    """Any flipped bit of header, slots or old entries is seen."""
    whole = index_file(OLD + LAST)
    unused = formats.INDEX_HEADER.nbytes + SLOTS * formats.INDEX_SLOT.nbytes
    passed = []
    for position in range(len(whole)):
        data = bytearray(whole)
        data[position] ^= 1
        try:
            known = is_known(bytes(data))
        except (IndexError, ValueError, formats.struct.error):
            continue
        if known:
            passed.append(position)
    # Entry 0 is never used; of the new entries only hash and offset count.
    first = range(unused, unused + formats.INDEX_ENTRY.nbytes)
    new = range(len(whole) - 2 * formats.INDEX_ENTRY.nbytes, len(whole))
    assert [position for position in passed if position not in first and position not in new] == []


# --- damaged stores ----------------------------------------------------------------------------

WAS: case_damage.Dump = {("T", 0, 0): (0, "a"), ("T", 0, 1): (100, "b"), ("T", 0, 2): (200, "c")}


def view(reference: case_damage.Dump, mode: str = "r", damage: str = "none") -> case_damage.View:
    """A store of three records; with ``damage`` "second" in the second of them."""
    outcome = Outcome(make_job(0, "5.3.3"))
    where = case_damage.Damage(damage, 150, 151) if damage == "second" else None
    sizes = {offset: 100 for offset, _ in WAS.values()}
    found = where or case_damage.Damage(damage)
    return case_damage.View(outcome, found, WAS, sizes, reference, mode)


def without(key: tuple[str, int, int], **more: Any) -> case_damage.Dump:
    return {name: value for name, value in WAS.items() if name != key} | more.get("but", {})


ONE, TWO = ("T", 0, 0), ("T", 0, 1)


@pytest.mark.parametrize(
    ("reference", "mine", "damage", "known"),
    [
        (WAS, WAS, "none", {}),
        (without(TWO), WAS, "second", {"lost": 1}),
        (without(TWO), without(TWO), "second", {}),
        (without(TWO, but={TWO: (100, "x")}), WAS, "second", {"altered": 1, "lost": 0}),
        # What lies in the damage itself may be shown: topic and properties are under no CRC.
        (WAS, without(TWO, but={TWO: (100, "x")}), "second", {}),
    ],
)
def test_damage_that_we_judge_rightly_passes(
    reference: case_damage.Dump, mine: case_damage.Dump, damage: str, known: dict[str, int]
) -> None:
    judged = view(reference, damage=damage)
    judged.check(mine)
    assert judged.outcome.failures == []
    assert +judged.outcome.found.known == +Counter(known)


@pytest.mark.parametrize(
    ("reference", "mine", "damage"),
    [
        # RocketMQ shows it rightly.
        (WAS, without(TWO), "second"),
        (WAS, without(ONE), "second"),
        # Both lose a message that is whole.
        (without(ONE), without(ONE), "second"),
        ({}, {}, "none"),
        # Altered, in another place, or never written.
        (WAS, without(ONE, but={ONE: (0, "x")}), "second"),
        (without(ONE, but={ONE: (0, "x")}), without(ONE, but={ONE: (0, "x")}), "second"),
        (WAS, without(ONE, but={ONE: (200, "c")}), "none"),
        (WAS, {**WAS, ("T", 1, 0): (0, "a")}, "none"),
    ],
)
def test_damage_that_we_judge_wrongly_does_not(
    reference: case_damage.Dump, mine: case_damage.Dump, damage: str
) -> None:
    judged = view(reference, damage=damage)
    judged.check(mine)
    assert judged.outcome.failures


ROTTEN = rocketstore.CorruptionError(Path("commitlog"), 4, "rotten")


def test_only_writing_may_be_refused_and_only_for_damage() -> None:
    refused = view(WAS, "r+")
    refused.refused(ROTTEN)
    assert refused.outcome.failures == []
    assert refused.outcome.found.known == {"refused": 1}
    for mode, error in (
        ("r", ROTTEN),
        ("r+", rocketstore.RocketStoreError("something else")),
    ):
        judged = view(WAS, mode)
        judged.refused(error)
        assert judged.outcome.failures


def test_a_store_that_rocketmq_does_not_load_is_a_failure(tmp_path: Path) -> None:
    job = make_job(0, "5.3.3")
    outcome = Outcome(job)
    check_opening(outcome, Asked(job, tmp_path, []), tmp_path, "r", None, "clean")
    assert outcome.failures


def test_only_empty_files_are_taken_out_of_a_killed_store(tmp_path: Path) -> None:
    item = Asked(make_job(0, "4.9.8"), tmp_path, [])
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / "0").write_bytes(b"x")
    assert not without_empty_files(item)
    (tmp_path / "commitlog" / "1").touch()
    (tmp_path / "abort").touch()
    assert without_empty_files(item)
    assert {path.name for path in tmp_path.rglob("*")} == {"commitlog", "0", "abort"}


def test_an_expired_message_is_not_lost_and_any_other_is() -> None:
    script = ({"op": "put"}, {"op": "expire", "keep": 1, "queues": True})
    questions = [{"op": "wait"}, {"op": "look", "offset": 0}, {"op": "look", "offset": 500}]
    there = {"message": {"offset": 500}}
    written = [({}, {"append": "PUT_OK", "offset": offset}) for offset in (0, 500)]
    for job_script, begin, last, passes in (
        (script, 400, there, True),
        (script, 400, {"message": None}, False),
        (script[:1], 400, there, False),
        (script, 0, there, False),
    ):
        job = make_job(0, "5.3.3").with_script(job_script)
        outcome = Outcome(job)
        answers = [{"minPhy": begin}, {"message": None}, last]
        item = Asked(job, Path(), questions)
        check_acknowledged(outcome, item, written, answers, "RocketMQ")
        assert (outcome.failures == []) == passes


def test_files_of_the_index_expire_by_where_the_log_really_begins(tmp_path: Path) -> None:
    """Log files had gone before, when the index files were left: more than an expiry that keeps
    many asks for."""
    header = formats.INDEX_HEADER
    for folder in ("commitlog", "index"):
        (tmp_path / folder).mkdir()
    for first in (49152, 65536):
        (tmp_path / "commitlog" / f"{first:020}").touch()
    for name, end in (("20260101000000001", 49151), ("20260101000000002", 70000)):
        values = {field.name: 0 for field in header.fields} | {"end_physical_offset": end}
        (tmp_path / "index" / name).write_bytes(header.struct.pack(*values.values()))
    expire(tmp_path, 32768, queues=True)
    assert [path.name for path in (tmp_path / "index").iterdir()] == ["20260101000000002"]
    assert len(list((tmp_path / "commitlog").iterdir())) == 2
