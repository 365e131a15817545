"""The encoders that come with the service as packed weights, and their conversion into ordinary model folders."""
