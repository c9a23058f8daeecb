"""Self attention with and without a token's own value, seed by seed."""
