"""What a cluster must have and allow before a run is submitted to it."""
