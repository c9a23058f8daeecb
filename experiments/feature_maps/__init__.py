"""Feature maps of linear attention, with a normaliser and with a norm in its place."""
