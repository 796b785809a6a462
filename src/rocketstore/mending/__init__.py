"""Mends a store's files: builds them again beside, and switches; on explicit request only."""
