"""What processes of one host share: their messages, sockets and folders, and how they live."""
