"""Find the commit that made a test slower."""
