"""A log as byte ranges for many workers, on disks and object stores.

Lists its segments, opens them, plans splits, and walks a split.
"""

from rocketstore.sources.files import open_input
from rocketstore.sources.segments import LogFiles, Segment, list_log
from rocketstore.sources.splits import Split, plan_splits

__all__ = ["LogFiles", "Segment", "Split", "list_log", "open_input", "plan_splits"]
