"""An open store: opening a directory, its parts and services, and the public class."""
