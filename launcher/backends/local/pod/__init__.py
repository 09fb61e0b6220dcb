"""A pod template -> a pod on this machine: its command, environment, volumes and addresses."""
