"""One rank of one group at work: its loop, its peers, what it sends and what it receives."""
