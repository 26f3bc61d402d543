"""Run commands on baseline files, a module for each action."""
