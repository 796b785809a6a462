"""How the cost of a message or call grows: with queues, segments, messages, bytes, threads."""
