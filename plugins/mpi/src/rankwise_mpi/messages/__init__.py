"""Point-to-point operations over one group's end."""
