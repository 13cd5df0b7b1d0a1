"""A small training with DDP, by torchrun: ddp.py CONFIG METRICS."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from dlcp_client import bounded, ddp
from dlcp_client.reporting import json_lines

STEPS, WINDOW = 200, 10

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
layers = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU())
model = DistributedDataParallel(layers, bucket_cap_mb=2)
handle = ddp.register(model, bounded(0.01), config=sys.argv[1])
if dist.get_rank() == 0:
    handle.report_to(json_lines(sys.argv[2]), every=WINDOW)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(STEPS + 1):
    optimizer.zero_grad()
    model(torch.randn(128, 512)).square().mean().backward()
    optimizer.step()
handle.close()
dist.destroy_process_group()
