"""The model directory: its layout, and who reads and writes checkpoints."""
