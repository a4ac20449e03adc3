"""The end of a group: who notices it, and how all members learn the one reason."""
