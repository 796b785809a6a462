"""The commands that move stores: copies and comparisons."""
