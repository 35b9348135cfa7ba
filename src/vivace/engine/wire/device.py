"""What the setting `device` says: a kind of device, and which one of them.

Owns its grammar. Whether the device is there is found out by the engine (`engine.devices`).
"""

import re
from dataclasses import dataclass

from vivace.config import DEVICE


@dataclass(frozen=True)
class DeviceWish:
    kind: str  # auto, cpu, cuda, vulkan or metal
    index: int | None = None  # None: any


def parse_device(text: str) -> DeviceWish:
    match = re.fullmatch(DEVICE, text)
    assert match, text
    kind, _, index = text.partition(":")
    return DeviceWish(kind, int(index) if index else None)
