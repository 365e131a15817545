"""The HTTP layer: checks requests, calls services and writes answers. It computes nothing."""
