"""An ext4 and an xfs are shut down under a writer: everything confirmed is there afterwards.

``make powercut-real`` does it any number of times, this a few.
"""

from __future__ import annotations

import itertools
import sys

import pytest

if not sys.platform.startswith("linux"):
    pytest.skip("mounts file systems of Linux", allow_module_level=True)

from conftest import IMPOSSIBLE
from crash import real_power_cut
from crash.real_file_system import KINDS, ImpossibleError
from rocketstore.files.mapped_file import MappedFile
from support.syncs import sync_by_calls

CUTS = 10
SEED = 20261122


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", KINDS)
def test_no_shutdown_of_a_file_system_breaks_a_promise(kind: str) -> None:
    promised = 0
    try:
        for one in real_power_cut.run(CUTS, SEED, [kind]):
            assert not one.broken, one
            promised += one.promised
    except ImpossibleError as error:
        pytest.skip(f"{IMPOSSIBLE}{error}")
    assert promised > 100


def test_a_log_that_is_not_synced_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def forget(file: MappedFile, position: int) -> None:
        file.flushed_position = max(position, file.flushed_position)

    sync_by_calls(monkeypatch)
    monkeypatch.setattr(MappedFile, "flush", forget)
    try:
        shutdowns = itertools.islice(real_power_cut.run(40, SEED, ["ext4"]), 40)
        broken = [one for one in shutdowns if one.broken]
    except ImpossibleError as error:
        pytest.skip(f"{IMPOSSIBLE}{error}")
    assert broken
