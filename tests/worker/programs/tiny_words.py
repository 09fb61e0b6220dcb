WORDS = ("exit", "thread", "silent", "alive")
