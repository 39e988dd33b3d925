"""Spans of runs for OpenTelemetry (extra `otel`): see `docs/telemetry.md`."""
