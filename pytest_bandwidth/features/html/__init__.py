"""Write the HTML pages: one self-contained file each."""
