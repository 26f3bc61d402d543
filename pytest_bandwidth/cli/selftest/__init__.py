"""Estimate what the gate can tell on this machine."""
