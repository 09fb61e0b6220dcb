"""Evaluation of a model: in a task beside the training, within the training, or without a training."""
