"""Translate PTX to C, build it with the compiler that is there, and describe how the result is launched."""

from emulated_card.kernels.build import Built, NoCompiler, NotSupported, Variable, build, variables_of

__all__ = ["Built", "NoCompiler", "NotSupported", "Variable", "build", "variables_of"]
