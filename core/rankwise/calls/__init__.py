"""The public calls: what a program asks of a group, checked once and handed to a backend."""
