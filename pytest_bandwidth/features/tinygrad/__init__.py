"""Measure callables on one of tinygrad's backends, such as METAL, by the host's clock and the backend's own wait."""
