"""Speech engines for the lanes: where somebody speaks, and what is said."""
