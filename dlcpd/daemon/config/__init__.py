"""The configuration file: its tables, its text, and the values in force."""
