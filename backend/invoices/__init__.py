"""The fields of invoices, receipts and bank statements, by labels, geometry and arithmetic, without templates."""
