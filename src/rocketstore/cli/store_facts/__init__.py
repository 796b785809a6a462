"""What ``info`` and ``ls`` say of a directory."""
