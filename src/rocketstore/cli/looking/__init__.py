"""Commands that look into a store: its use, lag, history, index and future."""
