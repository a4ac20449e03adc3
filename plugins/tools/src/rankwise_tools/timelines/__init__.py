"""The records of all ranks as pictures of time: for Perfetto, and as a page of its own."""
