"""`python -m experiments.exclusive [study] [--field value ...]`."""

import sys

from experiments.exclusive.main import main

if __name__ == "__main__":
    sys.exit(main())
