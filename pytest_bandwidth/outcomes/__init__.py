"""Hold judged measurements as plain rows, and what follows from them: a run's findings, a baseline's entries."""
