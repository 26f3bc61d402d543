"""Match what pytest collected with a baseline's entries."""
