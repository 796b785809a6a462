"""How the log reaches the disk, and who waits for it."""
