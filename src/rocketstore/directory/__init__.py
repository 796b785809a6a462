"""Everything else in a store's directory: paths, lock, checkpoint, state file, foreign parts."""
