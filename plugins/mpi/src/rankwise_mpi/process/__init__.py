"""MPI in this process: its beginning and its end, the progress thread, how a thread waits, the store over MPI."""
