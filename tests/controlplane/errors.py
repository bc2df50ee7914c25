"""What goes wrong here, as one line for a person."""


class ControlPlaneError(Exception):
    """The control plane could not be built or started; the message says what to do."""
