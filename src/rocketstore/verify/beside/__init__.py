"""Check the files around log, queues and index: tables, checkpoint, timer, foreign files."""
