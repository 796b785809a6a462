"""A broker's configuration file: its syntax, its keys, and what they mean for a store."""
