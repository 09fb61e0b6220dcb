"""A path -> valid clusters and the program that they ship, or every problem at once."""
