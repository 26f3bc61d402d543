"""Measure the same code again in new processes."""
