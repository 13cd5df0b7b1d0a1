"""Platform Cumulus Linux with NVUE."""
