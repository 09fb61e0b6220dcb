"""A Keras script that is run unchanged: its `fit`, `evaluate` and `predict` are the runtime's."""
