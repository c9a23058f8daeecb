"""What the papers claim, run: one folder an experiment."""
