"""What the tasks of a run do together: start, wait, come and go, shut down; and the strategy they
train with.
"""
