"""Benchmarks of speed, memory and quality: this service and its peers, in the same run on the same machine."""
