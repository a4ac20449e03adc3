"""Which groups there are and who is in them, from no group to a world and back."""
