"""The requests: their schemas, and how bodies and uploads are read.

Unknown fields are ignored, as OpenAI does. Types are strict: ``true`` is no token id and ``"3"`` no number.
"""
