"""Charts of figures as SVG, written without a library."""
