"""Collectives: how the ranks meet and compare their calls, and the calls of MPI that follow."""
