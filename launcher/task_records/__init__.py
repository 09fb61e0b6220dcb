"""Turns what tasks report of themselves into what a person reads. Pure functions."""
