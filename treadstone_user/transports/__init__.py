"""How calls reach Treadstone."""
