"""The process that the pod starts: it watches the training process, and starts it again."""
