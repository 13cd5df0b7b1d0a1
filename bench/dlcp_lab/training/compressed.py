"""The codecs of the trainings, and the rank of PowerSGD. Imports no torch."""

from typing import Final

CODECS: Final = ("bf16", "fp16", "int8", "fp8_e4m3", "fp8_e5m2", "topk:0.1", "topk:0.01")
POWER_SGD: Final = "PowerSGD"
POWER_SGD_RANK: Final = 4
