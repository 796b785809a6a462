"""Metrics of an open store for Prometheus, under RocketMQ's names (extra ``metrics``)."""

from rocketstore.metrics.collector import StoreCollector, exposition, serve

__all__ = ["StoreCollector", "exposition", "serve"]
