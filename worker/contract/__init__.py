"""What the launcher and the worker runtime agree on, and nothing else.

Standard library only: the launcher imports these modules, and the launcher never imports TensorFlow.
"""
