"""Turn a SIGBUS inside a guarded kernel into an error code. Native only; the Python API is
``install``."""

def install() -> bool:
    """Install the handler (idempotent, chained to the previous one); return False if the system
    has no signals."""
