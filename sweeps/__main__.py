"""`python -m sweeps` is the `sweeps` command."""

from sweeps.cli import main

main()
