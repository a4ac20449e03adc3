"""This rank's end of one group: its communicators, what is pending, how it waits, fails and learns of failures."""
