"""FinancIA Inference: documents and text in; text, boxes, labels, entities and vectors out."""

import sys
from typing import Any, cast

__version__ = "0.1.0"

# Importing OpenVINO tells its maker over the network, in a fork of this process: where another thread computed at that
# moment, fork and thread waited for each other for ever. Without this package OpenVINO tells nobody.
cast("dict[str, Any]", sys.modules)["openvino_telemetry"] = None
