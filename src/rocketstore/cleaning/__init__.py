"""Find expired files and delete them."""
