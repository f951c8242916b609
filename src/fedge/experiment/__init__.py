"""One experiment: set-up, rounds, evaluation, records."""
