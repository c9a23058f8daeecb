"""Encoders trained with attention from few scores: fixed and learnt, shared or not."""
