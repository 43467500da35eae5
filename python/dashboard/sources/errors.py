"""The faults of a source, in one form: the place, the value got, the values wanted, and the fix."""

from __future__ import annotations


class SourceError(Exception):
    """A file that can't be shown. The text has all of it, so that a page may show it as it is."""

    def __init__(self, where: str, what: str, got: str, wanted: str, fix: str) -> None:
        super().__init__(f"{where} {what}: got {got}, wanted {wanted}; {fix}")
        self.where = where
        self.what = what
