"""SQL92 filters: an expression is compiled to a program, which a kernel evaluates."""
