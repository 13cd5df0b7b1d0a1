"""Platform SONiC."""
