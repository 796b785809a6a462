"""An open store: taking a directory over, its parts and services, the front door."""
