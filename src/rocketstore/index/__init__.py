"""Index files: geometry, entries, rolling, lookups."""
