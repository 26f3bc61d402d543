"""Judge by code: what is the same, old code beside new, and which of them has the last word on a suspect."""
