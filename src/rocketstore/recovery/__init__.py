"""The log's true end: checking it, truncating a torn write, fitting the index to it."""
