"""What costs seconds and 300 MiB to import is imported by what needs it alone."""

import subprocess
import sys

import pytest

WORK = {
    "facts-of-a-cpu": "from backend.device.facts.machine import probe; probe(look_for_gpu=False)",
    "the-source-of-torchs-facts": "from backend.device.facts.torch_source import Torch; Torch().allocator('cuda:0')",
    "made-up-machines": "from backend.device.facts.simulated import MACHINES, facts; [*map(facts, MACHINES)]",
    "names-of-guides": "from backend.device import detect_platform, GPUManager, GPUConfig as Config; "
    "detect_platform(); GPUManager(Config())",
    "check-gpu": "import os; os.environ['DEVICE'] = 'cpu'; from backend.check_gpu import main; main([])",
    "what-is-installed": "from backend.models.runtimes import versions; assert all(versions().values())",
}


@pytest.mark.slow
@pytest.mark.parametrize("work", WORK.values(), ids=WORK)
def test_nothing_heavy_is_imported(work: str):
    """By facts of machines without a card, by the guides' names, and by asking what is installed."""
    heavy = "sorted({'torch', 'onnxruntime', 'openvino', 'transformers'} & set(sys.modules))"
    script = f"import sys; {work}; print({heavy})"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)

    assert "[]" == done.stdout.splitlines()[-1]


def test_openvino_tells_nobody():
    """Its import forked the process, to report itself to its maker: the service hung where another thread computed."""
    script = "import backend, openvino.tools.ovc.telemetry_utils as used; print(used.tm.__name__)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)

    assert "openvino.tools.ovc.telemetry_stub" == done.stdout.split()[-1]
