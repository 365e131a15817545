"""Invoices as data: XML inside a PDF or beside it, and what Spanish tax QR codes say. Parsed in worker processes."""
