"""`ddp.register(model, transport="auto")`: by bucket size, dlcpd or the framework's backend.

It is an option of `ddp.register`, and has no `register` of its own.
"""
