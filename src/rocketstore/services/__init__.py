"""Threads that run a step repeatedly, and ways to wake and wait."""
