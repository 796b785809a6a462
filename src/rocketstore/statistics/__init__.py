"""Figures of an open store: put times, and texts as RocketMQ writes them."""
