"""`python -m experiments.eigen [preset] [--field value ...]`."""

import sys

from experiments.eigen.main import main

if __name__ == "__main__":
    sys.exit(main())
