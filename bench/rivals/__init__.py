"""Rivals: how each is got and built; servers that are run as programs of their own."""
