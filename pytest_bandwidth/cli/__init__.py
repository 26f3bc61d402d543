"""Run `pytest-bandwidth`'s commands, a module each: `declare(parser)` says what it takes, `run(options)` does it.

What a command loads when it runs, and not before, is a module COMMAND_PART.
"""
