"""Measure on the run's device, one process at a time, and show the progress."""
