"""The tests. A package, so that they can share helpers (`from tests.servers import LocalServer`)."""
