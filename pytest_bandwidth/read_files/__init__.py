"""Note the files that a process reads, and list those of each test: they identify code that has no finer identity."""
