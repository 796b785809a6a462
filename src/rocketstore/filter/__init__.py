"""Message filters: what a consumer subscribes to."""

from __future__ import annotations

from rocketstore.filter.message_filter import MessageFilter
from rocketstore.filter.tag_filter import TagFilter

__all__ = ["MessageFilter", "TagFilter"]
