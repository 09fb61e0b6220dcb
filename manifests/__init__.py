"""The Jinja2 templates of a run's Kubernetes objects.

They print what `launcher.plan.pods` worked out; every scalar passes `tojson`.
"""
