"""Where independent pieces of work run: in processes of this host, or on the nodes of Ray."""
