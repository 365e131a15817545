"""What is wrong with a machine and what to do about it, row by row."""
