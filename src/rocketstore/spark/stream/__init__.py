"""Streams over a log."""
