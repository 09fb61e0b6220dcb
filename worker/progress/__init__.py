"""The progress records of a training, and its signs of life."""
