"""The completion scripts of the shells. They are data files."""
