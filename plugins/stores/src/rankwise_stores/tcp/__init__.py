"""`TCPStore`: a client and its connections, a server and what bounds it, and the messages between the two."""
