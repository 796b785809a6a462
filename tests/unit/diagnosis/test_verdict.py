"""Findings are merged, counted and limited."""

from __future__ import annotations

from rocketstore.diagnosis.verdict import MOST_PLACES, DataEffect, Findings, Place, Verdict


def test_one_place_is_one_finding() -> None:
    findings = Findings(10)
    place = Place("commitlog/0", 8192)
    assert findings.add("log.record.zeros", "", [place]) is not None
    assert findings.add("log.record.crc", "", [place]) is None
    assert findings.counts == {"log.record.zeros": 1}


def test_a_run_is_one_finding_with_counts() -> None:
    findings = Findings(10)
    for number in range(40):
        data = DataEffect("invisible", 1)
        findings.add("queue.unit.wrong", "", [Place("q", 20 * number)], data=data, run="T 0")
    (found,) = findings.listed()
    assert (len(found.where), found.more) == (MOST_PLACES, 40 - MOST_PLACES)
    assert found.count == findings.counts["queue.unit.wrong"] == 40
    assert found.data.messages == 40


def test_the_limit_and_the_gravest() -> None:
    findings = Findings(1)
    findings.add("log.clock", "", [Place("a")])
    assert findings.add("config.broken", "", [Place("b")]) is None
    assert findings.truncated
    assert findings.gravest == "critical"


def test_ranges_of_the_log_are_remembered() -> None:
    findings = Findings(10)
    findings.add("log.record.zeros", "", [Place("a", 0, 100, 5000)])
    assert findings.tells_offset(5099)
    assert not findings.tells_offset(5100)
    assert findings.tells("a", "log.record.zeros")


def test_a_verdict_is_shown_in_a_line() -> None:
    findings = Findings(10)
    findings.add("log.clock", "", [Place("a")])
    findings.add("config.broken", "", [Place("b")])
    shown = repr(Verdict("s", "full", 0, "refuses", "broken", findings=findings.listed()))
    assert shown.startswith("<Verdict of 's': refuses, broken; 1 critical, ")
    assert repr(Verdict("s", "full", 0, "well", "fine")).endswith("well, fine; no findings>")
