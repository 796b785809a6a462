"""The questions that a store answers."""
