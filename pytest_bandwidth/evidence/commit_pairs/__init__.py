"""Judge by another git revision."""
