"""Scores a model: beside the training, inside of it, or without one."""
