"""The figures of open stores, and their texts."""

from __future__ import annotations

import asyncio
import os
import re
import threading
import time
from pathlib import Path

import pytest

import rocketstore
from rocketstore.statistics.store_stats import java_double, size_text

OPTIONS = {"mapped_file_size_commit_log": 1 << 20}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"), (0.5, "0.5"), (1e7, "1.0E7"), (12345678.25, "1.234567825E7"),
        (1e-4, "1.0E-4"), (-1.0, "-1.0"), (9999999.0, "9999999.0"),
    ],
)  # fmt: skip
def test_java_writes_doubles_so(value: float, text: str) -> None:
    assert java_double(value) == text


def test_sizes_have_binary_units() -> None:
    found = [size_text(one) for one in (0, 1023, 1024, 1536, 1 << 30)]
    assert found == ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "1.0 GiB"]


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_the_figures_of_a_writer(tmp_path: Path, flush: str) -> None:
    with rocketstore.open(tmp_path / "s", "x", flush_disk_type=flush, **OPTIONS) as store:
        results = [store.put("T", b"x" * 100) for _ in range(5)]
        store.wait_dispatched()
        assert store.get_message("g", "T", 0, 0, 3).messages
        store.get_message("g", "T", 0, 5)
        store.get_message("g", "unknown", 0, 0)
        store.flush()
        stats = store.stats()
        info = store.runtime_info()
    assert (stats.put_times, stats.put_failed_times) == (5, 0)
    assert stats.put_nbytes == stats.max_physical_offset == stats.flushed_offset
    assert (stats.dispatch_behind_nbytes, stats.flush_behind_nbytes) == (0, 0)
    assert (stats.get_found_times, stats.get_missed_times) == (1, 2)
    assert stats.get_transferred_times == 3
    assert (stats.topics, stats.queues, stats.put_tps) == (1, 1, (None,) * 3)
    assert results[0].store_timestamp == stats.earliest_timestamp
    assert info["putMessageTimesTotal"] == "5"
    assert info["putMessageAverageSize"] == java_double(stats.put_nbytes / 5)
    assert info["putTps"] == info["getTransferredTps"] == "  "
    assert re.fullmatch(r"\[ 0 days, 0 hours, 0 minutes, \d+ seconds \]", info["runtime"])
    assert info["brokerVersionDesc"] == "V" + stats.broker_version.replace(".", "_")
    assert re.fullmatch(r"Total : .*iB, Free : .*iB\.", info["commitLogDirCapacity"])
    assert info["commitLogDiskRatio"] == info[f"commitLogDiskRatio_{tmp_path}/s/commitlog"]
    assert all(type(one) is str for one in info.values())


def test_4_9_spells_a_key_otherwise(tmp_path: Path) -> None:
    with rocketstore.open(tmp_path / "s", "x", broker_version="4.9.8", **OPTIONS) as store:
        info = store.runtime_info()
    assert "getTransferedTps" in info
    assert "getTransferredTps" not in info


def test_a_reader_tells_nothing_of_puts_and_counts_across_refreshes(tmp_path: Path) -> None:
    with rocketstore.open(tmp_path / "s", "x", **OPTIONS) as store:
        store.put("T", b"x")
        store.put("T", b"later", delay_level=3)
    with rocketstore.open(tmp_path / "s") as store:
        store.get_message("g", "T", 0, 0)
        store.refresh()
        store.get_message("g", "T", 0, 0)
        stats, info = store.stats(), store.runtime_info()
    assert (stats.is_writer, stats.get_found_times) == (False, 2)
    assert stats.delay_offsets == {3: (0, 1)}
    assert info["scheduleMessageOffset_3"] == "0,1"
    assert not any(key.startswith("put") for key in info)


#: Keys that only a broker can answer, by what they begin or end with, and one that is not measured.
BROKERS = ("ThreadPoolQueue", "EndTransaction", "msgPutTotal", "msgGetTotal", "brokerActive")
BROKERS += ("startAcceptSendRequestTimeStamp", "pageCacheLockTimeMills")
#: Keys of two recorded answers of brokers, without those.
KEYS = {
    "scheduleMessageOffset_1", "putMessageDistributeTime", "remainHowManyDataToFlush",
    "bootTimestamp", "commitLogMinOffset", "runtime", "dispatchMaxBuffer", "brokerVersion",
    "putTps", "getMissTps", "getTotalTps", "consumeQueueDiskRatio", "commitLogDiskRatio",
    "getFoundTps", "putMessageFailedTimes", "putLatency999", "commitLogMaxOffset",
    "getMessageEntireTimeMax", "putMessageTimesTotal", "putLatency99", "brokerVersionDesc",
    "putMessageEntireTimeMax", "earliestMessageTimeStamp", "commitLogDirCapacity",
    "remainTransientStoreBufferNumbs", "putMessageAverageSize", "dispatchBehindBytes",
    "putMessageSizeTotal",
}  # fmt: skip
TIMERS = {
    "timerReadBehind", "timerOffsetBehind", "timerCongestNum", "timerEnqueueTps", "timerDequeueTps",
}  # fmt: skip


@pytest.mark.parametrize(
    ("version", "number", "own"),
    [("4.9.8", "409", {"getTransferedTps"}), ("5.3.3", "479", {"getTransferredTps", *TIMERS})],
)
def test_a_writer_answers_the_keys_of_a_broker(
    tmp_path: Path, version: str, number: str, own: set[str]
) -> None:
    with rocketstore.open(tmp_path / "s", "x", broker_version=version, **OPTIONS) as store:
        store.put("T", b"x", delay_level=1)
        store.wait_dispatched()
        clock = Clock(store)
        clock.pass_seconds(61)
        info = store.runtime_info()
    ratio = f"commitLogDiskRatio_{tmp_path}/s/commitlog"
    assert info.keys() == KEYS | own | {ratio}
    assert not any(part in key for key in info for part in BROKERS)
    assert info["brokerVersion"] == number
    assert info["remainTransientStoreBufferNumbs"] == "2147483647"
    assert all(info[key] in ("0", "0.0") for key in own & TIMERS)


def test_brokers_since_5_4_answer_no_version_number(tmp_path: Path) -> None:
    with rocketstore.open(tmp_path / "s", "x", broker_version="5.5.0", **OPTIONS) as store:
        assert "brokerVersion" not in store.runtime_info()


def test_the_buffers_of_the_pool(tmp_path: Path) -> None:
    with rocketstore.open(
        tmp_path / "s", "x", start=False, transient_store_pool_enable=True,
        transient_store_pool_size=3, **OPTIONS,
    ) as store:  # fmt: skip
        store.put("T", bytes(2000))
        info, stats = store.runtime_info(), store.stats()
        assert (stats.transient_buffers, info["remainTransientStoreBufferNumbs"]) == (2, "2")
        assert stats.commit_behind_nbytes == stats.put_nbytes > 2000
        assert info["remainHowManyDataToCommit"] == size_text(stats.put_nbytes)
        store.flush()
        assert store.stats().commit_behind_nbytes == 0


# --- Samples of the service ---------------------------------------------------------------------


class Clock:
    """Moves the monotonic clock of a store's sampler, whose service takes the samples."""

    def __init__(self, store: rocketstore.DefaultMessageStore) -> None:
        assert store._sampler is not None
        self.sampler = store._sampler
        self.offset = 0.0
        self.sampler._monotonic = lambda: time.monotonic() + self.offset

    def pass_seconds(self, count: int) -> None:
        """Let the time pass; samples are taken as the service does it."""
        for _ in range(count):
            self.offset += 1
            self.sampler.step()


def test_windows_and_the_last_minute_are_known_at_the_first_call(tmp_path: Path) -> None:
    with rocketstore.open(tmp_path / "s", "x", **OPTIONS) as store:
        clock = Clock(store)
        clock.pass_seconds(30)
        for _ in range(100):
            store.put("T", b"x")
        store.wait_dispatched()
        for _ in range(50):
            store.get_message("g", "T", 0, 0, 1)
        clock.pass_seconds(40)
        stats = store.stats()
    assert stats.put_tps[:2] == (0.0, pytest.approx(100 / 61, rel=0.1))
    assert stats.get_found_tps[1] == pytest.approx(50 / 61, rel=0.1)
    assert stats.put_tps[2] is None
    assert stats.put_distribution is not None
    assert sum(stats.put_distribution.values()) == 100


def test_the_service_takes_samples(tmp_path: Path) -> None:
    with rocketstore.open(tmp_path / "s", "x", **OPTIONS) as store:
        assert store._sampler is not None
        count = len(store._sampler._seconds)
        while len(store._sampler._seconds) == count:
            time.sleep(0.01)
        writer = store._writer
        assert writer is not None
        assert writer.flush_queues.sampler is store._sampler


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_every_put_of_a_loop_is_one_time(tmp_path: Path, flush: str) -> None:
    async def put(store: rocketstore.DefaultMessageStore) -> None:
        await asyncio.gather(*(store.aput("T", b"x") for _ in range(20)))
        await store.aput_many([rocketstore.Message("T", b"x")])

    with rocketstore.open(tmp_path / "s", "x", flush_disk_type=flush, **OPTIONS) as store:
        asyncio.run(put(store))
        with store.begin("T", b"half", group="g") as transaction:
            assert transaction.result is not None
        writer = store._writer
        assert writer is not None
        calls, longest_ms, _, waited = writer.log.appender.times
        assert store.stats().put_longest_ms == longest_ms
    assert calls == 21 + (sum(waited.values()) - 21 if flush == "SYNC_FLUSH" else 0)
    assert calls >= (23 if flush == "SYNC_FLUSH" else 21)


def test_the_system_time_may_be_set_back(tmp_path: Path) -> None:
    now = [1_700_000_000_000]
    with rocketstore.open(tmp_path / "s", "x", clock=lambda: now[0], **OPTIONS) as store:
        store.put("T", b"x")
        now[0] -= 3_600_000
        store.put("T", b"x")
        clock = Clock(store)
        clock.pass_seconds(11)
        stats = store.stats()
    assert 0 <= stats.runtime_ms < 3_600_000
    assert stats.put_tps[0] is not None
    assert stats.put_tps[0] >= 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_is_refused(tmp_path: Path) -> None:
    with rocketstore.open(tmp_path / "s", "x", **OPTIONS) as store:
        store.stats()
        child = os.fork()
        if child == 0:
            try:
                store.stats()
            except rocketstore.ForkedStoreError:
                os._exit(7)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert store.stats().put_times == 0


def test_closing_while_figures_are_read(tmp_path: Path) -> None:
    store = rocketstore.open(tmp_path / "s", "x", **OPTIONS)
    store.put("T", b"x")
    ended: list[BaseException] = []
    started = threading.Event()

    def read() -> None:
        try:
            while True:
                store.stats()
                started.set()
        except rocketstore.StoreClosedError as error:
            ended.append(error)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    started.wait()
    store.close()
    for thread in threads:
        thread.join()
    assert len(ended) == 3
