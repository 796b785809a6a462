"""What a store does with messages beyond storing them: delays, delivery times, transactions."""
