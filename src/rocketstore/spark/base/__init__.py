"""What all of Spark's parts share: sessions, options, schema, shipping."""
