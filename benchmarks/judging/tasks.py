"""What is judged; the words that results and tables share. Imports nothing, for the tables are checked often."""

from __future__ import annotations

CLASSES = "classes"  # by bundled heads
LEARNT = "learnt-classes"  # by heads learnt while the service runs
ZERO_SHOT = "zero-shot"  # by labels alone
NAMES = "names"
PATTERNS = "patterns"
RANKING = "ranking"
LIKENESS = "likeness"
LANGUAGE = "language"
