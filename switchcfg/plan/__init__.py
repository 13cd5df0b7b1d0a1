"""Plans: the difference between a device and an intent, and the steps that remove it."""
