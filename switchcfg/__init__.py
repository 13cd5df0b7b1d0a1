"""Makes switches honour the traffic classes: render, plan, apply, verify, roll back."""
