"""``python -m backend.training``."""

import sys

from backend.device.facts.amx import disable_faulty_amx
from backend.device.facts.host import cpu
from backend.training.cli import main

if __name__ == "__main__":
    disable_faulty_amx(cpu()[1])
    sys.exit(main())
