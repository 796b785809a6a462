"""What is wrong with a store, what that means for its data, and what a broker does; read-only."""
