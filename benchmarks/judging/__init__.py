"""How good the answers are: the service asked as its users ask it, on sets whose right answers are known."""
