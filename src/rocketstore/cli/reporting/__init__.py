"""The command that writes a page."""
