"""Directories in a bucket of S3, which TensorFlow cannot open: the objects, and a local mirror of them."""
