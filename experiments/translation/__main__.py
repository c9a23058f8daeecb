"""`python -m experiments.translation [preset] [--field value ...]`."""

import sys

from experiments.translation.main import main

if __name__ == "__main__":
    sys.exit(main())
