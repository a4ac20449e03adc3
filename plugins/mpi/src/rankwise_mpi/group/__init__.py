"""This rank's end of one group: its communicators, what is pending on it, how it waits, fails and hears of failures."""
