"""What webhook, controller and certs share: Kubernetes API client, reflector, store, events, lease.

Imports nothing else of ours.
"""
