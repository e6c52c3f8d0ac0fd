"""What the server offers: its templates."""

from __future__ import annotations

from typing import Any

STORAGE_SIZES = ("5Gi", "10Gi", "20Gi")
DEFAULT_STORAGE_SIZE = STORAGE_SIZES[0]
IMAGE = "ghcr.io/earayu/treadstone-sandbox:v0.2.1"
MAX_CONCURRENT_RUNNING = 10_000
"""Told by the usage routes, and not enforced: a local server shall not be in the way of a burst."""

_SIZES = (
    ("large", "Large", "Full-featured sandbox with browser automation", "2", "8Gi"),
    ("medium", "Medium", "General-purpose development environment", "1", "4Gi"),
    ("small", "Small", "Small sandbox for simple development tasks", "500m", "2Gi"),
    ("tiny", "Tiny", "Lightweight sandbox for code execution and scripting", "250m", "1Gi"),
    ("xlarge", "XLarge", "Heavy workloads with maximum resources", "4", "16Gi"),
)

TEMPLATES: tuple[dict[str, Any], ...] = tuple(
    {
        "name": f"aio-sandbox-{size}",
        "display_name": f"AIO Sandbox {title}",
        "description": description,
        "image": IMAGE,
        "resource_spec": {"cpu": cpu, "memory": memory},
        "allowed_storage_sizes": list(STORAGE_SIZES),
    }
    for size, title, description, cpu, memory in _SIZES
)
TEMPLATE_NAMES = tuple(str(template["name"]) for template in TEMPLATES)
SMALLEST_TEMPLATE = "aio-sandbox-tiny"


def storage_gib(size: str | None) -> int:
    """Read a storage size such as `5Gi` or `1Ti` as GiB; none is 0."""
    if not size:
        return 0
    return int(size[:-2]) * (1024 if size.endswith("Ti") else 1)
