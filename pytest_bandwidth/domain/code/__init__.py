"""Tell what code ran: hashes that identify it, and what its PTX says."""
