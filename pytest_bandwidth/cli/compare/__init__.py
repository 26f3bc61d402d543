"""Compare saved runs."""
