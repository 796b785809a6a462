"""From the log to queues and index."""
