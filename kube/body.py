"""Memory for answers that are read whole.

Invariant: one body at a time; a list of many pages uses the same memory for each.
"""

import httpx


class BodyBuffer:
    """Memory for one body at a time."""

    __slots__ = ("_data",)

    def __init__(self) -> None:
        self._data = bytearray()

    async def fill(self, response: httpx.Response) -> memoryview:
        """The body of `response`; let go of the view of the one before first (BufferError)."""
        size = 0
        async for chunk in response.aiter_bytes():
            end = size + len(chunk)
            # Where this ends beyond the memory of the last body, the memory grows.
            self._data[size:end] = chunk
            size = end
        return memoryview(self._data)[:size]
