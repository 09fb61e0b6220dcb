"""Kubernetes' own rules for a pod: the fields and their types, and how two templates are merged."""
