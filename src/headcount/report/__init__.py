"""What `headcount report` makes of a study: tables, figures, and one page with all of them."""
