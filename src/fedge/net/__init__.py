"""The networked runtime: a server and clients on real machines."""
