"""Load-test a Treadstone deployment: ``locust --headless --scenario pilot_stateless --local``."""

from locust import events

from treadstone_user import plugin
from treadstone_user.user import SandboxUser

plugin.register(events)


class TreadstoneUser(SandboxUser):
    """Creates a sandbox through the CLI, waits until it is ready, and goes on to the next."""
