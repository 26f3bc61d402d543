"""Identify the code that ran by hashes, and read its PTX."""
