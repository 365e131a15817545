#!/usr/bin/env python3
"""Ends with 0 when the service in this container is ready, else with 1 and the reason. The images' health check."""

import http.client
import os
import sys

try:
    # A probe of the device may take five seconds of this.
    connection = http.client.HTTPConnection("127.0.0.1", int(os.environ.get("PORT") or 8000), timeout=8)
    connection.request("GET", "/health/ready")
    answer = connection.getresponse()
    told = answer.read().decode(errors="replace")
except (OSError, http.client.HTTPException) as error:
    sys.exit(f"no answer: {error!r}")
sys.exit(0 if answer.status == 200 else f"{answer.status} {told}")
