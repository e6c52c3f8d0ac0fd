"""A Locust plugin that load-tests Treadstone: sandboxes created, awaited, deleted, and told truthfully."""

__version__ = "0.1.0"
