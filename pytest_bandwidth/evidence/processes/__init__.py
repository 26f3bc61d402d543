"""Start child processes of a run, exchange messages with them, and end them."""
