"""Share what every HTML page needs: templates and their security policy, style sheet, colours, charts' parts."""
