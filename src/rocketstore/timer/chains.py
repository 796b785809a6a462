"""Follow the slots' chains through the timer log.

No position from the disk is trusted. A link is followed only to an earlier unit of the same slot,
so each unit is visited once, whatever the files hold.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rocketstore import formats
from rocketstore.timer.findings import TimerFindings
from rocketstore.timer.timer_log import TimerLog, TimerUnits
from rocketstore.timer.wheel import Wheel

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    Numbers = NDArray[numpy.int64]


def detect_precision(wheel: Wheel | None, log: TimerLog, default_ms: int) -> int:
    """Return the precision in ms that the slots' newest units show.

    Without such units ``default_ms``.
    """
    import numpy as np

    if wheel is None or not len(wheel.times):
        return default_ms
    units, _ = log.units(int(wheel.last[wheel.last >= 0].min(initial=0)), -(2**63))
    at = np.searchsorted(units.positions, wheel.last)
    at[at == len(units.positions)] = 0
    if not len(units.positions):
        return default_ms
    hits = units.positions[at] == wheel.last
    votes = Counter(
        {
            precision: int((units.times[at] // precision == wheel.times)[hits].sum())
            for precision in formats.TIMER_PRECISIONS_MS
        }
    )
    (precision, count), *_ = votes.most_common(1)
    return precision if count > votes[default_ms] else default_ms


class Chains:
    """The chains of all slots that are not read yet.

    Parameters
    ----------
    wheel : Wheel or None
    log : TimerLog
    precision_ms : int
    read_time : int
        Epoch ms: earlier slots were read.
    recovered_from : int
        A broker's start reads the timer log from this position on, and corrects the slots.
    findings : TimerFindings

    Attributes
    ----------
    units : TimerUnits
        Those that chains lead to.
    last_offset : int or None
        Commit-log offset of the last unit of all.
    """

    def __init__(
        self,
        wheel: Wheel | None,
        log: TimerLog,
        precision_ms: int,
        read_time: int,
        recovered_from: int,
        findings: TimerFindings,
    ) -> None:
        self._wheel = wheel
        self._log = log
        self._precision_ms = precision_ms
        self._recovered_from = recovered_from
        self._findings = findings
        self._slots = _Slots.of(wheel, read_time // precision_ms)
        lowest = self._lowest()
        units, self.last_offset = log.units(lowest, read_time)
        if lowest > 0 and ((units.previous >= 0) & (units.previous < lowest)).any():
            units, _ = log.units(0, read_time)  # the slots' first positions are wrong
        self.units = self._linked(units)

    def _lowest(self) -> int:
        """Return the lowest position that a chain may reach, as far as the slots say."""
        firsts = self._slots.first
        lowest = int(firsts.min()) if len(firsts) else self._log.end
        return max(min(lowest, self._recovered_from), 0)

    def _linked(self, units: TimerUnits) -> TimerUnits:
        import numpy as np

        slot_times = units.times // self._precision_ms
        order = np.argsort(slot_times, kind="stable")
        times, positions = slot_times[order], units.positions[order]
        starts = np.flatnonzero(np.diff(times, prepend=times[:1] - 1))
        self._report_empty(times[starts])
        if not len(starts):
            return units
        stops = np.append(starts[1:], len(times))
        expected = np.roll(positions, 1)
        expected[starts] = -1
        matches = units.previous[order] == expected
        heads = positions[stops - 1]
        self._judge_heads(times[starts], heads)
        whole = np.logical_and.reduceat(matches, starts)
        linked = np.repeat(whole, stops - starts)
        for number in np.flatnonzero(~whole).tolist():
            start, stop = int(starts[number]), int(stops[number])
            linked[start:stop] = self._walk(
                positions[start:stop], units.previous[order[start:stop]]
            )
        self._compare_counts(units.bits[order], linked, times[starts], starts, heads)
        return units.take(np.sort(order[linked]))

    def _judge_heads(self, times: Numbers, newest: Numbers) -> None:
        """Report slots whose last position is not that of the newest unit of their time."""
        import numpy as np

        last = self._slots.last_of(times)
        for number in np.flatnonzero(last != newest).tolist():
            position = int(newest[number])
            if last[number] < position and position >= self._recovered_from:
                continue  # a broker's start sets it
            found = "no slot of the wheel has its time"
            if last[number] >= 0:
                found = f"its slot's last position is {last[number]}"
            path, at = self._log.place(position)
            self._findings.add("timer-slot", path, at, f"the newest unit of its time, but {found}")

    def _report_empty(self, times: Numbers) -> None:
        """Report slots without a unit of their time."""
        import numpy as np

        slots = self._slots
        for number in np.flatnonzero(~np.isin(slots.times, times)).tolist():
            assert self._wheel is not None
            time = int(slots.times[number]) * self._precision_ms
            reason = f"no unit of its time {time} is at its last position {slots.last[number]}"
            position = self._wheel.position_of(int(slots.numbers[number]))
            self._findings.add("timer-slot", self._wheel.path, position, reason)

    def _walk(self, positions: Numbers, previous: Numbers) -> NDArray[numpy.bool_]:
        """Return which units of a slot its chain leads to; report why it ends early."""
        import numpy as np

        numbers = {position: number for number, position in enumerate(positions.tolist())}
        inside = np.zeros(len(positions), bool)
        at = int(positions[-1])
        while True:
            number = numbers[at]
            inside[number] = True
            following = int(previous[number])
            if following == -1:
                break
            if following not in numbers or following >= at:
                path, place = self._log.place(at)
                reason = (
                    f"it is linked to position {following}, which is {self._odd(following, at)}"
                )
                self._findings.add("timer-chain", path, place, reason)
                break
            at = following
        for number in np.flatnonzero(~inside).tolist():
            path, place = self._log.place(int(positions[number]))
            reason = "no link of its slot leads to this unit: a broker does not deliver its message"
            self._findings.add("timer-chain", path, place, reason)
        return inside

    def _odd(self, position: int, at: int) -> str:
        segments = self._log.segments
        if position >= at:
            return "not before it"
        if segments and position < segments[0].start:
            return "in a file that was deleted" if position >= 0 else "out of range"
        return "not that of a unit of this slot"

    def _compare_counts(
        self,
        bits: Numbers,
        linked: NDArray[numpy.bool_],
        times: Numbers,
        starts: Numbers,
        heads: Numbers,
    ) -> None:
        """Report slots whose number is not that of their chain (D-57)."""
        import numpy as np

        if self._wheel is None:
            return
        signs = np.where(bits & formats.TIMER_UNIT_DELETE, -1, 1) * linked
        sums = np.add.reduceat(signs, starts)
        found = self._slots.numbers_of(times)
        for number in np.flatnonzero(found >= 0).tolist():
            slot = int(found[number])
            count = int(self._slots.counts[slot])
            if self._slots.last[slot] != heads[number] or count == sums[number]:
                continue
            reason = f"its count is {count}, but its chain has {int(sums[number])}"
            position = self._wheel.position_of(int(self._slots.numbers[slot]))
            self._findings.add("timer-count", self._wheel.path, position, reason)


class _Slots:
    """The slots that are not read yet, ascending by time."""

    def __init__(self, numbers: Numbers, wheel: Wheel | None) -> None:
        import numpy as np

        nothing = np.zeros(0, np.int64)
        self.numbers = numbers
        self.times = nothing if wheel is None else wheel.times[numbers]
        self.first = nothing if wheel is None else wheel.first[numbers]
        self.last = nothing if wheel is None else wheel.last[numbers]
        self.counts = nothing if wheel is None else wheel.counts[numbers]

    @classmethod
    def of(cls, wheel: Wheel | None, since: int) -> _Slots:
        """Return the slots of ``wheel`` from the time ``since`` on."""
        import numpy as np

        if wheel is None:
            return cls(np.zeros(0, np.int64), None)
        return cls(np.flatnonzero(wheel.times >= since), wheel)

    def numbers_of(self, times: Numbers) -> Numbers:
        """Return the place of the slot of each time; -1 without one."""
        import numpy as np

        if not len(self.times):
            return np.full(len(times), -1, np.int64)
        at = np.minimum(np.searchsorted(self.times, times), len(self.times) - 1)
        return np.where(self.times[at] == times, at, -1)

    def last_of(self, times: Numbers) -> Numbers:
        """Return the last position of the slot of each time; -1 without one."""
        import numpy as np

        found = self.numbers_of(times)
        if not len(self.times):
            return found
        return np.where(found >= 0, self.last[found], -1)
