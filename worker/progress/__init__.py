"""Progress records of a training, and its signs of life."""
