"""Monitoring of devices: periodic snapshots, their history, alerts, and the report of GET /metrics/gpu."""
