"""`python -m experiments.scaling [preset] [--field value ...]`."""

import sys

from experiments.scaling.main import main

if __name__ == "__main__":
    sys.exit(main())
