"""Messages with a delivery time: the timer wheel, its log and its checkpoint; read-only."""
