"""Judging by another git revision."""
