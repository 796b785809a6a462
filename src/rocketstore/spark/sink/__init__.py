"""Write to a store from Spark: tasks stage rows, one commit appends them."""
