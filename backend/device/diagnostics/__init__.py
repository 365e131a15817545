"""Diagnoses a machine for ``check_gpu``: what works, what does not, and what to do about it."""
