"""How a group is made: cards that say where each rank listens, and the memory that one host shares."""
