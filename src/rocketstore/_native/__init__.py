"""Native kernels, built from src/_native."""
