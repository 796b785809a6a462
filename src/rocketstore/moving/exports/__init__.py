"""Exports: messages as files, and their import."""
