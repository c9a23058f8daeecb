"""`python -m experiments.linear_copy [preset] [--field value ...]`."""

import sys

from experiments.linear_copy.main import main

if __name__ == "__main__":
    sys.exit(main())
