"""One client's side of an exchange."""
