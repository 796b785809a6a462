"""Reading from a store: by offset, queue, key and time."""
