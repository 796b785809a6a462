"""Apache RocketMQ's on-disk message store as a Python library."""
