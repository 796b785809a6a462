"""Repairs a damaged store, on explicit request only."""
