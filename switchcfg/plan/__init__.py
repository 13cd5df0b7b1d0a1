"""From an intent and the state of a device to what the device is told."""
