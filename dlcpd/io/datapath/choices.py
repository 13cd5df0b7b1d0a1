"""The data paths that a setting can ask for."""

from typing import Final

SETTING: Final = "DLCPD_DATA_PATH"  # environment: replaces "auto"; may be a library's path
AUTO, COMPILED, NUMPY = "auto", "compiled", "numpy"
CHOICES: Final = (AUTO, COMPILED, NUMPY)
