"""The lines of goods and services of an invoice or a receipt."""
