"""Which way a collective goes: at the board of one host, between hosts, or both."""
