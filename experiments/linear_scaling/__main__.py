"""`python -m experiments.linear_scaling [preset] [--field value ...]`."""

import sys

from experiments.linear_scaling.main import main

if __name__ == "__main__":
    sys.exit(main())
