"""A fuzzer of whole store directories: damage one, open it, and see that no promise is broken."""
