"""Code shared by the hooks for DDP, FSDP2 and cross_step: rules, buckets, registrations."""
