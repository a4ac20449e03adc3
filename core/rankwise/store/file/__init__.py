"""`FileStore`: the journal that is its file, the records in it, and where it may lie."""
