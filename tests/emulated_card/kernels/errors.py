"""Say what the card does not model."""


class NotSupported(Exception):
    """The kernel needs what the card does not model; the message names it and its line."""
