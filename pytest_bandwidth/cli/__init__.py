"""One module a command of `pytest-bandwidth`: `declare(parser)` says what it takes, `run(options)` does it."""
