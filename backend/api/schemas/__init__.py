"""What travels on the wire: requests parsed straight from their bytes, and answers for OpenAPI only.

Unknown fields are ignored, as OpenAI does. Types are strict: ``true`` is no token id and ``"3"`` no number.
"""
