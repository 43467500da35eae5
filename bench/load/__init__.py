"""Servers under load, and the loads, for the benches of the whole server."""
