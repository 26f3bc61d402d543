"""Hold the field's own values and rules. Standard library only; imports no other room of the package."""
