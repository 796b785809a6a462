"""The commit log: records by offset, scans, appending, room ahead of the writer."""
