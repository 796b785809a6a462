"""``rocketstore spark``: the Spark jobs as commands."""
