"""Books: the ledger of many documents and its exports."""
