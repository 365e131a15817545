"""Small records that all replicas see, in Redis or PostgreSQL: versions, deletions, who runs. Knows no models."""
