"""The c10d backend: `dist.init_process_group("dlcp")`."""
