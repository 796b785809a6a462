"""What ``info`` and ``ls`` report about a directory."""
