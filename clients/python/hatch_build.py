"""Adds the program to the wheel if POLITELY_BINARY names it (scripts/package).

The wheel then has the commands `politely` and `politely-client`, which are the same.
"""

import os
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CustomBuildHook(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        binary = os.environ.get("POLITELY_BINARY")
        if self.target_name != "wheel" or not binary:
            return
        build_data["shared_scripts"] = {binary: "politely", "politely-client": "politely-client"}
        build_data["pure_python"] = False
        build_data["tag"] = "py3-none-" + os.environ["POLITELY_PLATFORM"]
