"""Commands about a broker's configuration file."""
