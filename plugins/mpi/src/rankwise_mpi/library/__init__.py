"""The MPI library: whether it is there, who starts its processes, what it takes, how it fails, what it reduces."""
