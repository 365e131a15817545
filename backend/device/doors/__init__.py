"""The names that guides and users know, each a thin entry to the floor below; torch is imported at once here."""
