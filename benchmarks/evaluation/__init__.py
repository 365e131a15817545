"""Evaluations of the quality benchmark: the service's results on labelled data sets."""
