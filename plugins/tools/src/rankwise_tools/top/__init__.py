"""What `rankwise top` is made of: jobs and how they are asked, what samples say together, and how that is shown."""
