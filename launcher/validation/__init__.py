"""Reads a path, and returns valid clusters and their programs, or every problem at once."""
