"""``python -m rocketstore`` is the command ``rocketstore``."""

from rocketstore.cli import main

main()
