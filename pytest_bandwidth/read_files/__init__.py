"""Note the files that a process reads, and list those that each test depends on: code that nothing finer identifies."""
