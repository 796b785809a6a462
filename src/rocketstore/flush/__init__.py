"""Flushing the log to disk, and the puts that wait for it."""
