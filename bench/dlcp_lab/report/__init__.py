"""What results are told with: amounts, statistics, verdicts."""
