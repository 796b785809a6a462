"""Making a broken store whole, on demand."""
