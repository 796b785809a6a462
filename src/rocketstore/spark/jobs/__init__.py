"""Jobs over whole stores: planned on the driver, run split by split in tasks."""
