"""How long puts took: RocketMQ's classes and buckets."""

from __future__ import annotations

from itertools import accumulate

#: The classes of ``putMessageDistributeTime``: upper bound in ms (exclusive, of the first
#: inclusive), and RocketMQ's label.
CLASSES = (
    (1, "[<=0ms]"), (10, "[0~10ms]"), (50, "[10~50ms]"), (100, "[50~100ms]"),
    (200, "[100~200ms]"), (500, "[200~500ms]"), (1000, "[500ms~1s]"), (2000, "[1~2s]"),
    (3000, "[2~3s]"), (4000, "[3~4s]"), (5000, "[4~5s]"), (10_000, "[5~10s]"),
)  # fmt: skip
LAST_LABEL = "[10s~]"
#: Upper bounds in ms (inclusive) of the buckets that percentiles are computed from.
BOUNDS = (
    *range(1, 21), *range(22, 51, 2), *range(55, 101, 5), *range(110, 201, 10),
    *range(250, 501, 50), *range(600, 1001, 100), *range(2000, 10_001, 1000), 2**31 - 1,
)  # fmt: skip
#: How long an appender's calls took: their number, the longest in ms, and by whole ms how many of
#: a sample of those that never waited, and how many that did.
Times = tuple[int, int, dict[int, int], dict[int, int]]


def times_between(before: Times, after: Times) -> dict[int, int]:
    """Return the number of puts by whole ms between two readings of an appender's times.

    The sample of puts that never waited stands for all of them; without one they count as 0 ms.
    """
    sampled = {ms: count - before[2].get(ms, 0) for ms, count in after[2].items()}
    waited = {ms: count - before[3].get(ms, 0) for ms, count in after[3].items()}
    plain = after[0] - before[0] - sum(waited.values())
    found = {ms: count for ms, count in waited.items() if count}
    left, of = max(plain, 0), sum(sampled.values())
    # Longest first: what rounding leaves are the shortest ones, which are most.
    for ms in sorted((ms for ms, count in sampled.items() if count), reverse=True):
        share = left * sampled[ms] // of
        found[ms] = found.get(ms, 0) + share
        left, of = left - share, of - sampled[ms]
    if left:
        found[0] = found.get(0, 0) + left
    return found


def percentile(times_ms: dict[int, int], share: float) -> float:
    """Return the time in ms that ``share`` of the puts do not exceed.

    ``times_ms`` counts puts by whole ms. As in RocketMQ, the value is interpolated inside the
    bucket of the rank, and 0.0 without puts.
    """
    counts = [0] * len(BOUNDS)
    for elapsed, count in times_ms.items():
        counts[next(i for i, bound in enumerate(BOUNDS) if elapsed <= bound)] += count
    rank = int(sum(counts) * share)
    for i, passed in enumerate(accumulate(counts)):
        if rank <= passed:
            low = BOUNDS[i - 1] if i else 0
            inside = rank - (passed - counts[i])
            return low + ((BOUNDS[i] - low) * inside / counts[i] if counts[i] else 0.0)
    raise AssertionError("a rank beyond all puts")


def distribution(times_ms: dict[int, int]) -> dict[str, int]:
    """Return the number of puts by RocketMQ's class of time; ``times_ms`` as in ``percentile``."""
    found = {label: 0 for _, label in CLASSES} | {LAST_LABEL: 0}
    for elapsed, count in times_ms.items():
        label = next((label for bound, label in CLASSES if elapsed < bound), LAST_LABEL)
        found[label] += count
    return found
