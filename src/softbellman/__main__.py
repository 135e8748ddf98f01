"""Entry point of `python -m softbellman`."""

from softbellman.cli import main

main()
