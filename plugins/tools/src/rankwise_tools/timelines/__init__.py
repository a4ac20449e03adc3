"""The records of all ranks as pictures of time: for Perfetto, for torch's analyser, and as a page of its own."""
