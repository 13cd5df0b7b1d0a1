"""What an operation may lose, what it waived, and what it reapplies."""
