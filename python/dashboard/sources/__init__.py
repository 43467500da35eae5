"""Readers of the files: telemetry CSVs, JSON of benches, counters of a live server."""
