"""What moves bytes: connections over sockets, and pipes through shared memory."""
