"""A fuzzer of store directories: damage one, open it, and check that no promise is broken."""
