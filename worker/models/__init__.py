"""The program's model: its variables, optimizer, lookup tables and predictions."""
