"""How fast the mechanisms are, beside other libraries: `python -m benchmarks`."""
