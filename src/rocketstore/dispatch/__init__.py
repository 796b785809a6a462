"""Building queues and index from the log."""
