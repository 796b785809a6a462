"""Every record, unit and entry against each other; changes nothing."""
