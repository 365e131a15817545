"""Files, vector stores and chunks in a folder of this machine: SQLite for the records, plain files for the uploads."""
