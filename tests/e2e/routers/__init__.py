"""Real routers from the package index, driven by podstamp."""
