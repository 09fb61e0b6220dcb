"""What the tasks of a collective (MultiWorkerMirrored) do together, beside the training; elastic ones too."""
