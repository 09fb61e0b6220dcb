"""What a step does on a replica, how its variables travel, and how many steps an execution has."""
