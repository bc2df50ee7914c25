"""Keeps LLM routers in step with the engines that are alive.

The store says which engines exist, probes say what they serve, and one lane for each thing
that is driven (a router replica, a file, a set of slices) makes it equal to that.
"""
