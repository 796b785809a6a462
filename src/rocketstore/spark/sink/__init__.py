"""Writing to a store from Spark: staged by tasks, committed once."""
