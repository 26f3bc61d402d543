"""Render saved runs for the trackers that teams have: a module for each form."""
