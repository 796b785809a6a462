"""Plans of repairs: written down, done, and taken back; on explicit request only."""
