"""``python -m backend.training``."""

import sys

from backend.training.cli import main

if __name__ == "__main__":
    sys.exit(main())
