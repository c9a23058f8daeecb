"""`python -m experiments.compare [preset] [--field value ...]`."""

import sys

from experiments.compare.main import main

if __name__ == "__main__":
    sys.exit(main())
