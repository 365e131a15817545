"""What confirmed documents of a supplier teach about its next one."""
