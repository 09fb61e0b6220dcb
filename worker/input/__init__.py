"""The program's datasets: how they are shared out over tasks and replicas, and what is checked of them."""
