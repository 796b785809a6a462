"""Threads of a running store."""
