"""Transactions: half messages, the decisions about them, and the checks of undecided ones."""
