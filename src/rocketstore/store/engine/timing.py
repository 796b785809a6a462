"""The timer of a store: which messages wait for their delivery time."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from rocketstore.store.open_store import OpenStore

if TYPE_CHECKING:
    from rocketstore.timer.report import TimerReport


class TimingStore(OpenStore):
    """The calls about messages with a delivery time."""

    def timers(self, *, deliver: bool = False) -> TimerReport:
        """Read the timer's wheel, log, queue and checkpoint; report what is due when.

        Changes nothing, and may run beside a broker. A store of 4.9 has no timer: the report is
        empty.

        Parameters
        ----------
        deliver : bool
            Refused: a broker delivers timer messages.

        Returns
        -------
        TimerReport
            ``pending`` yields the messages, ascending by due time. What is wrong with the files
            is in ``findings``.

        Raises
        ------
        io.UnsupportedOperation
            With ``deliver``.
        StoreClosedError

        Notes
        -----
        Threading: any thread.
        """
        reader = self._use()
        if deliver:
            raise io.UnsupportedOperation(
                "rocketstore does not deliver timer messages; a RocketMQ broker does, from its "
                "next start on"
            )
        from rocketstore.timer.reader import read_timers

        return read_timers(
            self.path,
            reader.dialect,
            reader.log,
            reader.queues,
            precision_ms=self._config.timer_precision_ms,
            now=self._clock(),
        )
