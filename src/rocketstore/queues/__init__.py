"""Consume queues of every type: units, files, folders, and the table of all queues."""
