"""The program's datasets: how tasks and replicas share them, and the checks on them."""
