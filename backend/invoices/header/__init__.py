"""Numbers and dates at the head of a document, orders, terms and accounts."""
