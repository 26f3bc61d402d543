"""Tie the rooms to pytest: options, fixture, judging, fresh processes, publishing."""
