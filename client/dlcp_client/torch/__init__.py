"""What the hooks for DDP, FSDP2 and cross_step share."""
