"""What the server offers: its templates and their storage."""

from __future__ import annotations

from typing import Any

from prep.localserver.errors import bad_request, template_not_found

STORAGE_SIZES = ("5Gi", "10Gi", "20Gi")
DEFAULT_STORAGE_SIZE = STORAGE_SIZES[0]
IMAGE = "ghcr.io/earayu/treadstone-sandbox:v0.2.1"

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
TEMPLATES_BY_SIZE = tuple(f"aio-sandbox-{size}" for size in ("tiny", "small", "medium", "large", "xlarge"))
SMALLEST_TEMPLATE = TEMPLATES_BY_SIZE[0]


def storage_gib(size: str | None) -> int:
    """Read a storage size such as `5Gi` or `1Ti` as GiB; none is 0."""
    if size is None:
        return 0
    return int(size[:-2]) * (1024 if size.endswith("Ti") else 1)


def check_offered(template: str, storage_size: str | None) -> None:
    """Refuse a template that there is not, and a storage size that it does not offer.

    Raises:
        ApiError: 404 for the template, 400 for the size.
    """
    if template not in TEMPLATE_NAMES:
        raise template_not_found(template)
    if storage_size is not None and storage_size not in STORAGE_SIZES:
        raise bad_request(
            f"Storage size '{storage_size}' is not allowed for template '{template}'. "
            f"Allowed sizes: {', '.join(STORAGE_SIZES)}"
        )
