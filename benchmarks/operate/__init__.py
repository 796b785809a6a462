"""Cost of the commands for operators: seconds, CPU seconds and memory, on stores of any size."""
