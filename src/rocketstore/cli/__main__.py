"""``python -m rocketstore.cli`` is the command ``rocketstore``."""

from rocketstore.cli import main

main()
