"""Measure or count on a device: a folder each, behind one contract, `base.Device`."""
