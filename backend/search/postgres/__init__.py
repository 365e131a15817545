"""The storage on a PostgreSQL server with pgvector, which replicas share."""
