"""Background traffic on a fabric: TCP and UDP flows that compete with the job."""
