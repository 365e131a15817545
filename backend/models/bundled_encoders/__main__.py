"""Converts the bundled encoders into the installation, for every process of it.

    python -m backend.models.bundled_encoders

Run when the service is installed and when an image is built; a start does the same for itself where it was not.
"""

from __future__ import annotations

import sys

from backend.errors import ModelUnavailable
from backend.models.bundled_encoders.converted_folder import convert_into
from backend.models.bundled_encoders.recipes import FULL, STUDENT, student_recipe
from backend.models.unpacked_folder import INSTALLED


def main() -> int:
    """Convert what this release has; the exit code."""
    try:
        recipes = [FULL, *([student_recipe()] if STUDENT.is_dir() else [])]
        for recipe in recipes:
            sys.stdout.write(f"{convert_into(INSTALLED, recipe)}\n")
    except (ModelUnavailable, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
