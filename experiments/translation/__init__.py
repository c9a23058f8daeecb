"""Translation with the Transformer, on sentence pairs that need no download site."""
