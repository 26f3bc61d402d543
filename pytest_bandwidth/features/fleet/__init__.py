"""Measure every card of a Ray cluster."""
