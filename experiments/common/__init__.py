"""What every experiment needs: a command line, a work directory, provenance."""
