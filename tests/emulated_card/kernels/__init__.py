"""Translate PTX to C, build it with the compiler that is there, and describe how the result is launched."""

from emulated_card.kernels.build import Built, NoCompiler, build
from emulated_card.kernels.errors import NotSupported
from emulated_card.kernels.module import Entry, Module, Variable, describe

__all__ = ["Built", "Entry", "Module", "NoCompiler", "NotSupported", "Variable", "build", "describe"]
