"""Shared by all Spark modules: sessions, options, schema, shipping."""
