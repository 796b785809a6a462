"""Threads that run a step again and again, and ways to wake and wait."""
