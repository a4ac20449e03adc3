"""What `rankwise bench` is made of: libraries, the program of each rank, saved runs, and a bar of progress."""
