"""What ``diff`` compares, one part a module, and how it reports differences."""
