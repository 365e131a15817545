"""Makes invoices, receipts, table pages and pages without fields, as PDFs and scans, with exact truth.

The designs, wordings, names and goods are not those of ../shared/data/fields_dev, whose format of truth this follows.
"""
