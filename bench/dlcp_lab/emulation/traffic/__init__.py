"""Traffic of others on a fabric: TCP and UDP flows that run beside the job."""
