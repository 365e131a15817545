"""Output formats of a document; ``registry`` lists them.

Nothing is imported here: a worker process that writes a searchable PDF needs that format alone.
"""
