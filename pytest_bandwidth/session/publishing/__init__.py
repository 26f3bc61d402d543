"""Publish a run's results after its tests: the baseline's update, files, summary."""
