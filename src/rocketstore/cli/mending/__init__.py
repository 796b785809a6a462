"""Commands that replace a store's files and can take that back."""
