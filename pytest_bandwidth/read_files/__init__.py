"""Note the files that a process reads, and list those of each test: they identify what nothing tells more finely."""
