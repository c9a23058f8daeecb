"""Attention scores of encoders: their dimension, what they share, what a few tell."""
