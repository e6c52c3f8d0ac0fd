"""What must stand before a run: preflight, accounts, keys, sandboxes, and a local server to practise on."""
