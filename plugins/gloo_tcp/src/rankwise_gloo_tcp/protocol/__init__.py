"""What messages are and how they meet: no socket, no thread, no clock."""
