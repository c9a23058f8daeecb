"""`python -m experiments.feature_maps [preset] [--field value ...]`."""

import sys

from experiments.feature_maps.main import main

if __name__ == "__main__":
    sys.exit(main())
