"""Moving stores and messages: copies, comparisons, exports, imports; the source is only read."""
