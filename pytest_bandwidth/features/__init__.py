"""Hold the optional features, a folder each. A feature imports the core and no other feature."""
