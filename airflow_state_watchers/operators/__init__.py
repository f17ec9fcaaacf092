"""Operators whose job outlives their worker."""
