"""What the tasks of a run do together: start, wait, reconnect, shut down; and the strategy they
train with.
"""
