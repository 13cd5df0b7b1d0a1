"""Schedules as data: what each rank sends, receives and reduces, and in which order."""
