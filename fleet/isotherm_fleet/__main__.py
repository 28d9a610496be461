"""`python -m isotherm_fleet` is the command."""

from .cli import main

main()
