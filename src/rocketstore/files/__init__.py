"""Files on disk and their mappings: created whole, mapped, synced, rolled, deleted."""
