"""What can be learnt: one file a task."""
