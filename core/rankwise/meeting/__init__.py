"""How the processes of a job find each other: what a launcher has told them, and the rendezvous at a store."""
