"""How collectives are made of messages: algorithms, what runs them, the comparison of calls, and the order of issue."""
