"""``fsck``: checking a store with many tasks."""
