"""``rocketstore demo``."""
