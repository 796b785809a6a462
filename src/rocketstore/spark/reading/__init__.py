"""Read a log with Spark: listing, splits, filters, scans."""
