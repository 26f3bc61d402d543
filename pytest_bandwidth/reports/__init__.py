"""Finished values → text. Imports the domain only."""
