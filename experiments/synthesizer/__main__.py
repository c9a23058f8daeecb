"""`python -m experiments.synthesizer [study] [--field value ...]`."""

import sys

from experiments.synthesizer.main import main

if __name__ == "__main__":
    sys.exit(main())
