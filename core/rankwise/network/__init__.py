"""Which of this machine's addresses to use, and the secret that tells the job's own processes from strangers."""
