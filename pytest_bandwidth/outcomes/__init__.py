"""Hold judged measurements as plain rows, and derive from them a run's findings and a baseline's entries."""
