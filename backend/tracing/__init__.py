"""Traces: what a request did when, as spans that an OpenTelemetry collector gets over OTLP. Off unless it is set."""
