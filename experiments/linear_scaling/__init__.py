"""Time and memory of attention over the length: figure 1 of the Linear Transformer."""
