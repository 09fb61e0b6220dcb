"""Stops what is left of a run when its primary has ended."""
