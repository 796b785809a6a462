"""What has expired, and deleting it."""
