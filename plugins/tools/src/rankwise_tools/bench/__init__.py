"""What `rankwise bench` is made of: libraries, the program of each rank, saved runs, plots, and a bar of progress."""
