"""The pytest side: options, fixture, judging, fresh processes, publishing."""
