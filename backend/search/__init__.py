"""Collections of documents without a model: what is stored, how it is filtered, and how its chunks are ranked."""
