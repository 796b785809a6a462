"""What else lies in a store's directory: paths, lock, checkpoint, state, foreign parts."""
