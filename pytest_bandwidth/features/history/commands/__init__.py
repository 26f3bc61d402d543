"""Ask the history of many runs."""
