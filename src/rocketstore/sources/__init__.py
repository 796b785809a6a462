"""A log as byte ranges for many workers, on disks and object stores.

Lists its segments, opens them, plans splits, and walks a split.
"""

from rocketstore.sources.files import open_input
from rocketstore.sources.segments import LogFiles, Segment, list_log
from rocketstore.sources.splits import Split, plan_splits
from rocketstore.sources.walk import Pass, log_end

__all__ = [
    "LogFiles",
    "Pass",
    "Segment",
    "Split",
    "list_log",
    "log_end",
    "open_input",
    "plan_splits",
]
