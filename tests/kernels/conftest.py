"""Kernels are compiled once for each content of their source."""

from kept import compiled_once as compiled_once
