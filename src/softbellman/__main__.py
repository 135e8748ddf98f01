"""Runs the command line: `python -m softbellman`."""

from softbellman.cli import main

main()
