"""`python -m fedge.cli`, where the `fedge` command is not on the path."""

from fedge.cli import main

main()
