"""`report.html`: a whole study as one page that needs no network."""
