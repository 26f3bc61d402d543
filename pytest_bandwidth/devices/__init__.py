"""One file per device behind one small Protocol (`base`). Imports the domain only."""
