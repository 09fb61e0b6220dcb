"""tables:Tables, in a container of 64 MiB of memory."""

from tables import Tables

from worker.process import memory

memory.limit = lambda: 64 << 20

__all__ = ["Tables"]
