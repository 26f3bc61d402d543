"""Child processes of a run."""
