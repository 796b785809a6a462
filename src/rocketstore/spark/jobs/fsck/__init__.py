"""``fsck``: check a store with many tasks."""
