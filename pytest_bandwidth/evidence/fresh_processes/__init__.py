"""Measure in child processes of a run."""
