"""`python -m attnlens`."""

from attnlens.cli import main

main()
