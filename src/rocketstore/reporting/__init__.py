"""A store's state as one HTML page: for an engineer on call, and to keep."""
