"""Files of traces: one format a file, read and written."""
