"""Run `pytest-bandwidth`'s commands, a module each: `declare(parser)` adds the arguments, `run(options)` runs it.

Only the module of the running command is imported.
"""
