"""A valid cluster -> the Kubernetes objects of its run. Pure."""
