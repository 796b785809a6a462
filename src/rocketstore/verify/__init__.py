"""Check every record, unit and index entry against each other; read-only."""
