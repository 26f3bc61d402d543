"""Gather evidence beyond the first measurement: old code in turns with new code, and new processes."""
