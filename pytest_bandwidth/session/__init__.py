"""Tie the rooms to pytest: collect, judge, publish."""
