"""Arrays in memory that the ranks of a host share."""
