"""What stands beside log, queues and index: tables, checkpoint, timer files, foreign entries."""
