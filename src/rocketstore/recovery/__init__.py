"""Find the log's valid end, truncate a torn write, and bring the index in line with the log."""
