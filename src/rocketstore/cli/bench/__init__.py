"""``rocketstore bench``."""
