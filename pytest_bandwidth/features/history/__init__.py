"""Follow tests, and the cards of a fleet, over many runs."""
