"""HTTP only: what comes in is checked here, what goes out is written here, and nothing is computed here."""
