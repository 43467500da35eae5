"""The error of `lumen quantize`. Pure."""

from __future__ import annotations

# Of OpenVINO's messages: where in its sources, and that something failed.
SAY_NOTHING = ("Exception from", "Check 'false'", "FrontEnd API failed", "Model wasn't fully")
LONGEST = 300


def told_by(error: BaseException) -> str:
    """A library's message in one line, with the part that tells something first."""
    lines = [line.strip() for line in str(error).splitlines()]
    kept = [line for line in lines if line and not line.startswith(SAY_NOTHING)] or lines
    text = " ".join(kept) or type(error).__name__
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."


class QuantizeError(RuntimeError):
    """Its text names the fault, the place and the fix; it goes to stderr as it is."""
