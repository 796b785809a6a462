"""Commands about messages that wait: delays, delivery times, transactions."""
