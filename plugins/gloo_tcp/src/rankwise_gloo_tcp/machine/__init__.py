"""What the operating system offers: waiting for memory, counting processors, reading other processes, polling."""
