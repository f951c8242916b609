"""The networked runtime: a server and clients on real machines."""

import logging
import os

# gRPC logs every failed handshake and malformed call from strangers. It reads the variable when it is imported.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
logging.getLogger("grpc").setLevel(logging.CRITICAL)
