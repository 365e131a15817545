"""infinity as a Ray Serve deployment: two replicas of one core each. Runs in infinity's environment, which has ray too.

.venv-infinity/bin/python benchmarks/infinity_on_ray.py PORT FOLDER DTYPE BATCH_SIZE
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Any

os.environ |= {"RAY_SERVE_ENABLE_HA_PROXY": "1", "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1", "RAY_worker_niceness": "0"}
os.environ |= {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0"}
os.environ |= {"RAY_DISABLE_METRICS_COLLECTION": "1"}

import ray
from ray import serve

PORT, FOLDER, DTYPE, BATCH_SIZE = sys.argv[1:]


def build() -> Any:
    """infinity's own app, made in the replica as its command makes it."""
    from infinity_emb import EngineArgs
    from infinity_emb.infinity_server import create_server

    options = {
        "model_name_or_path": FOLDER,
        "served_model_name": "bundled",
        "engine": "torch",
        "device": "cpu",
        "dtype": DTYPE,
        "batch_size": int(BATCH_SIZE),
        "compile": False,
        "bettertransformer": False,
    }
    return create_server(engine_args_list=[EngineArgs(**options)], url_prefix="/v1")


ray.init(num_cpus=2, include_dashboard=False, object_store_memory=256 * 2**20)
serve.start(http_options={"host": "127.0.0.1", "port": int(PORT)})
deployment = serve.deployment(serve.ingress(build)(), name="infinity")
options = {"num_replicas": 2, "max_ongoing_requests": 2000, "ray_actor_options": {"num_cpus": 1}}
serve.run(deployment.options(**options, logging_config={"enable_access_log": False}).bind(), name="infinity")
stopped = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stopped.set())
stopped.wait()
serve.shutdown()
