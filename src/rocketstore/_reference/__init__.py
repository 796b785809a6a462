"""Pure-Python kernels: the oracle of the tests and the baseline of the benchmarks."""
