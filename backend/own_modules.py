"""What a process that runs one of this project's modules needs to find them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]  # the folder that holds the package
# As it is when the service starts: while a thread imports OpenCV, that puts its own folder there, and a process that
# begins then would take cv2/typing for the standard library's.
PYTHONPATH = os.pathsep.join([str(_ROOT), *filter(None, sys.path)])
