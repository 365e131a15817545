"""Load and engine benchmarks: this service and its peers, measured in the same run on the same machine."""
