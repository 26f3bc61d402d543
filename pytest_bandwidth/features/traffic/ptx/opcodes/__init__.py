"""Hold PTX opcodes: a table in the manual's notation, and a function of NumPy arrays for each row."""
