"""Judge whether a drop is a regression, and on what evidence."""
