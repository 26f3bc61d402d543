"""Compare a changed kernel with its old code, kept as machine code or PTX, in new processes."""
