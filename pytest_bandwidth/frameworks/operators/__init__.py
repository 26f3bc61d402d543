"""Add up what a callable's operators read and write, as each framework tells it."""
