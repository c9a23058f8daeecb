"""`python -m experiments.eigen_training [preset] [--field value ...]`."""

import sys

from experiments.eigen_training.main import main

if __name__ == "__main__":
    sys.exit(main())
