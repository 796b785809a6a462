"""Files on disk and their mappings: created atomically, mapped, synced, rolled, deleted."""
