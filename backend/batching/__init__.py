"""Lanes and the jobs that wait for them: the only concurrency of the service."""
