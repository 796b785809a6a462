"""Compiled SQL92 filters: evaluation over dicts of properties, and over their stored bytes."""

from collections.abc import Mapping
from typing import final

from typing_extensions import Buffer

@final
class Program:
    """A compiled filter, see ``rocketstore.sql92_program``. Verdicts are ``Verdict`` values, as
    plain ints. Any number of threads may evaluate one at once."""

    names: tuple[str, ...]
    errors: int
    def __init__(self, program: bytes, /) -> None:
        """Copy and check the program; ``ValueError`` for other bytes. A program that the compiler
        did not make may give any verdict, but the same in both bodies."""
    def evaluate(self, properties: Mapping[str, str], /) -> int:
        """Return the verdict. ``TypeError`` if a property that is asked for is not a str; an
        unpaired surrogate in one counts as ``?``."""
    def matches(self, properties: Mapping[str, str], /) -> bool:
        """Return whether the verdict is TRUE."""
    def evaluate_stored(self, properties: Buffer, /) -> int:
        """Return the verdict for properties as a record stores them: read as by
        ``parse_properties``. ``ValueError`` for more bytes than a record can have."""
    def fault(self, properties: Mapping[str, str], /) -> int:
        """Return the number of the instruction that raises, -1 if none does; counts nothing."""
    def count_errors(self, count: int, /) -> None:
        """Add to ``errors``, which counts the ERROR verdicts of the other methods."""
