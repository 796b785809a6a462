"""Turns SIGBUS inside a guarded kernel into an error code. Native only; no Python API besides
``install``."""

def install() -> bool:
    """Install the handler (idempotent, chained to the previous one); False where there are no
    signals."""
