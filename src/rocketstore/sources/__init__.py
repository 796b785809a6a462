"""A store's log as a row of byte ranges that many workers read: listing its segments, opening them
on local disks and remote storage, planning splits, walking one split."""

from rocketstore.sources.files import open_input
from rocketstore.sources.segments import LogFiles, Segment, list_log
from rocketstore.sources.splits import Split, plan_splits

__all__ = ["LogFiles", "Segment", "Split", "list_log", "open_input", "plan_splits"]
