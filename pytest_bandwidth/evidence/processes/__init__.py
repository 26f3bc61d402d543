"""Start child processes of a run, talk with them, and end them."""
