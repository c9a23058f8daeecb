"""`python -m experiments.linear_images [preset] [--field value ...]`."""

import sys

from experiments.linear_images.main import main

if __name__ == "__main__":
    sys.exit(main())
