"""The networked runtime: a server and clients on real machines."""

import os

# gRPC logs to stderr, among other things every failed handshake of whoever finds the port; it reads this on import.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
