"""Run `pytest-bandwidth`'s commands, a module each: `declare(parser)` says what it takes, `run(options)` does it.

The module of the command that is run is imported, and no other.
"""
