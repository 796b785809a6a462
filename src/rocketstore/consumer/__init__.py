"""Consumers, and reads that wait for messages."""
