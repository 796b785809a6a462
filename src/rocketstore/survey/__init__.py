"""Detect sizes, RocketMQ version and losses from a store's files before it is opened."""
