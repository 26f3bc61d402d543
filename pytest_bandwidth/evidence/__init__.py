"""Gather evidence beyond the first measurement: old code next to new code, and the same code in new processes."""
