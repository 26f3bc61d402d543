"""Compare a test with its code at another git revision."""
