"""What the network reads of a document's fields, and how it is weighed against the rules."""
