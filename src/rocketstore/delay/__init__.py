"""Delayed messages: which are due, their delivery exactly once, and reports."""
