"""The amounts of an invoice or a receipt: candidates by labels and columns, settled by arithmetic."""
