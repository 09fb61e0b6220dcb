"""The model directory: what is in it, and who reads and writes checkpoints."""
