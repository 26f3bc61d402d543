"""Run `pytest-bandwidth`'s commands, a module each: `declare(parser)` says what it takes, `run(options)` does it."""
