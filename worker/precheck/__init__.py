"""What a task can do before it trains: its processors, its storage, and its connections to the others."""
