"""Runs side by side on one page of HTML, which needs neither files nor a network."""
