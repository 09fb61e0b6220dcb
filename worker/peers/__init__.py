"""The other tasks of a run, under any strategy: their names, whether they answer, whether they fit."""
