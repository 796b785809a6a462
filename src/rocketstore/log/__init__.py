"""The commit log: records by offset, scans, appending, allocation ahead of the writer."""
