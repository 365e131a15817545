"""Classes of pages by their pictures: files are framed in the worker processes, and pages share the lanes."""
