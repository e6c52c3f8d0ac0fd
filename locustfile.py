"""Load-test a Treadstone deployment: ``locust --headless --scenario pilot_stateless --local``."""

from locust import events

from treadstone_user import plugin
from treadstone_user.user import SandboxQueryUser, SandboxStreamUser, SandboxUser

plugin.register(events)


class TreadstoneUser(SandboxUser):
    """Creates a sandbox through the CLI, waits until it is ready, and goes on to the next."""


class QueryUser(SandboxQueryUser):
    """Lists and gets sandboxes, and asks for accounts, templates and usage."""


class StreamUser(SandboxStreamUser):
    """Runs commands in sandboxes, or speaks to services there, and follows what they stream."""
