"""Gather evidence beyond the first measurement: old code compared with new code, and the same code in new processes."""
