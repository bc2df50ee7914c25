"""Stand-ins for LLM routers, each with the traps of the one that it is named after."""
