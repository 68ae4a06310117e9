"""What the measuring scripts share."""
