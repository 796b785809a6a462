"""How messages and stores look: columns and presets, HTML in notebooks."""
