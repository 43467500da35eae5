"""`./dev compare BASE HEAD`: two builds in turns."""
