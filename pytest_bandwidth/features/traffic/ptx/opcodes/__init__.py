"""Hold PTX opcodes: a table that reads like the manual, and what each row computes on NumPy arrays."""
